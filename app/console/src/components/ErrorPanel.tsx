/** An error that teaches: what is wrong, every fault with its place, what helps, and the code to look up. */
import { ApiError } from "~/api/client";
import { Button, Note } from "./basics";

export function ErrorPanel({ error, retry, title }: { error: Error; retry?: () => void; title?: string }) {
  if (!(error instanceof ApiError)) {
    return (
      <Note tone="bad">
        <strong>{title ?? "A fault of the console"}</strong>
        <span>{error.message}</span>
        {retry && <Retry retry={retry} />}
      </Note>
    );
  }
  const { problem } = error;
  return (
    <Note tone="bad">
      <strong>{title ?? problem.title}</strong>
      {problem.errors.length < 2 && <span>{problem.detail}</span>}
      {problem.errors.length > 1 && (
        <ul>
          {problem.errors.map((fault) => (
            <li key={fault.pointer + fault.code}>
              {fault.pointer && <code>{fault.pointer} </code>}
              {fault.detail} {fault.code && <CodeLink code={fault.code} />}
            </li>
          ))}
        </ul>
      )}
      {problem.cure && <span class="cure">{plain(problem.cure)}</span>}
      <span class="small muted">
        {problem.status > 0 ? <a href={problem.type}>{problem.code}</a> : problem.code}
        {problem.request_id && ` · request ${problem.request_id}`}
      </span>
      {retry && <Retry retry={retry} />}
    </Note>
  );
}

function Retry({ retry }: { retry: () => void }) {
  return (
    <span>
      <Button small icon="restart" onClick={retry}>
        Try again
      </Button>
    </span>
  );
}

/** The code of an error, which leads to its page of the guide. */
export function CodeLink({ code }: { code: string }) {
  return <a href={`/v1/errors/${code}`}>{code}</a>;
}

/** Texts of the service mark code by backquotes. */
export function plain(text: string) {
  return text.split("`").map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part));
}
