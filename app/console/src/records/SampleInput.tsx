/** A place for records as people have them: paste a text, drop a file, or choose one. */
import { useRef, useState } from "preact/hooks";
import { Button } from "~/components/basics";
import { plural } from "~/format";
import type { Sample } from "./sample";
import "./records.css";

interface Props {
  label: string;
  text: string;
  sample: Sample;
  onText: (text: string) => void;
  /** Larger files are refused: their text is kept in the page. */
  mostBytes?: number;
}

const FORMS = { json: "JSON", ndjson: "lines of JSON", csv: "CSV" };
const MIB = 1024 * 1024;

export function SampleInput({ label, text, sample, onText, mostBytes = 32 * MIB }: Props) {
  const [isOver, setOver] = useState(false);
  const [refusal, setRefusal] = useState<string | null>(null);
  const chooser = useRef<HTMLInputElement>(null);

  const take = async (file: File | undefined): Promise<void> => {
    if (file === undefined) return;
    if (file.size > mostBytes) {
      setRefusal(`${file.name} has ${Math.ceil(file.size / MIB)} MiB. Up to ${mostBytes / MIB} MiB fit here; send larger files with curl or the Python client.`);
      return;
    }
    const found = await file.text();
    if (found.includes("\0")) {
      setRefusal(`${file.name} is no text. JSON, lines of JSON and CSV can be read here.`);
      return;
    }
    setRefusal(null);
    onText(found);
  };

  return (
    <div
      class={`drop${isOver ? " is-over" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void take(event.dataTransfer?.files[0]);
      }}
    >
      <textarea
        aria-label={label}
        spellcheck={false}
        value={text}
        placeholder={'{"origin": "JFK", "flight": 725, "departed_at": "2013-01-01T10:44:00Z"}\n\nJSON, one object per line, or CSV with a head line. Or drop a file here.'}
        onInput={(event) => {
          setRefusal(null);
          onText(event.currentTarget.value);
        }}
      />
      <div class="drop-foot">
        <span role="status">{refusal ?? told(text, sample)}</span>
        <span class="row">
          {text !== "" && (
            <Button kind="quiet" small onClick={() => onText("")}>
              Clear
            </Button>
          )}
          <Button small onClick={() => chooser.current!.click()}>
            Choose a file
          </Button>
          <input
            ref={chooser}
            type="file"
            class="unseen"
            tabIndex={-1}
            aria-label="File of records"
            accept=".json,.ndjson,.jsonl,.csv,.tsv,.txt,application/json,text/csv"
            onChange={(event) => {
              void take(event.currentTarget.files?.[0]);
              event.currentTarget.value = "";
            }}
          />
        </span>
      </div>
    </div>
  );
}

function told(text: string, sample: Sample): string {
  if (text.trim() === "") return "Nothing leaves your browser until you send it.";
  const found = `${FORMS[sample.form]}: ${plural(sample.records.length, "record")}, ${plural(sample.names.length, "column")}`;
  return sample.faults.length === 0 ? found : `${found}; ${plural(sample.faults.length, "part")} cannot be read`;
}
