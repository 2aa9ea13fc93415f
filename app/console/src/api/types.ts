/** Names of the answers, for short. The types are generated from the service's OpenAPI document (`make console-types`). */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type StatementState = Schemas["StatementState"];
/** Only a script of several statements has `statements`. */
export type Problem = Omit<Schemas["ProblemBody"], "statements"> & { statements?: StatementState[] | null };
export type Me = Schemas["MeAnswer"];
export type Overview = Schemas["OverviewAnswer"];
export type OverviewQuery = Schemas["OverviewQuery"];
export type OverviewRelation = Schemas["OverviewRelation"];
export type OneQuery = Schemas["OneQueryAnswer"];
export type QueryDefinition = Schemas["QueryDefinition"];
export type Status = Schemas["StatusAnswer"];
export type WaitingSpan = Schemas["WaitingSpan"];
export type Counter = Schemas["Counter"];
export type Lateness = Schemas["LatenessAnswer"];
export type SettingAdvice = Schemas["SettingAdvice"];
export type AdviceItem = Schemas["AdviceItem"];
export type LateRecord = Schemas["LateRecord"];
export type LateRecordPage = Schemas["LateRecordPage"];
export type ReplayAnswer = Schemas["ReplayAnswer"];
export type QueryEvent = Schemas["Event"];
export type Run = Schemas["Run"];
export type Reject = Schemas["Reject"];
export type RejectPage = Schemas["RejectPage"];
export type Explanation = Schemas["ExplainAnswer"];
export type ExplainStep = Schemas["ExplainStep"];
export type Validation = Schemas["ValidationAnswer"];
export type EditPreview = Schemas["EditPreview"];
export type Warning = Schemas["WarningItem"];
export type Relation = Schemas["RelationAnswer"];
export type ProblemItem = Schemas["ProblemItem"];
export type RowsAnswer = Schemas["RowsAnswer"];
export type RecordsAnswer = Schemas["RecordsAnswer"];
export type AppendAnswer = Schemas["AppendAnswer"];
export type StatementResult = Schemas["StatementResult"];
export type Functions = Schemas["FunctionsAnswer"];
export type DriverItem = Schemas["DriverItem"];
export type LeasedQueryItem = Schemas["LeasedQueryItem"];
export type ConnectionAnswer = Schemas["ConnectionAnswer"];
export type CheckAnswer = Schemas["CheckAnswer"];
export type ApiKeyAnswer = Schemas["ApiKeyAnswer"];
export type AuditEntry = Schemas["AuditEntry"];
export type RegisteredAnswer = Schemas["RegisteredAnswer"];
