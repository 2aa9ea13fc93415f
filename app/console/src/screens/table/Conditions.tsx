/** Conditions on rows, each a chip that can be taken away, and a small form for one more. */
import { useState } from "preact/hooks";
import type { Relation } from "~/api/types";
import { Button } from "~/components/basics";
import { Icon } from "~/components/icons";
import { OPERATORS, shown, type Condition, type Operator } from "./conditions";
import "./table.css";

export function Conditions({ relation, conditions, onChange }: { relation: Relation; conditions: Condition[]; onChange: (conditions: Condition[]) => void }) {
  const names = Object.keys(relation.columns);
  const [isOpen, setOpen] = useState(false);
  const [column, setColumn] = useState(relation.key[0] ?? names[0] ?? "");
  const [operator, setOperator] = useState<Operator>("eq");
  const [value, setValue] = useState("");

  const add = (): void => {
    if (operator !== "null" && value.trim() === "") return;
    const made = { column, operator, value: operator === "null" ? "true" : value.trim() };
    onChange([...conditions.filter((each) => each.column !== column || each.operator !== operator), made]);
    setValue("");
    setOpen(false);
  };
  return (
    <div class="row wrap" role="group" aria-label="Conditions">
      {conditions.map((condition, at) => (
        <span class="chip" key={`${condition.column}.${condition.operator}`}>
          {shown(condition)}
          <button type="button" aria-label={`Delete: ${shown(condition)}`} onClick={() => onChange(conditions.filter((_, place) => place !== at))}>
            <Icon name="close" size={12} />
          </button>
        </span>
      ))}
      {isOpen ? (
        <form
          class="row wrap condition-form"
          onSubmit={(event) => {
            event.preventDefault();
            add();
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape") setOpen(false);
          }}
        >
          <select class="input" aria-label="Column" value={column} onChange={(event) => setColumn(event.currentTarget.value)}>
            {names.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
          <select class="input" aria-label="Comparison" value={operator} onChange={(event) => setOperator(event.currentTarget.value as Operator)}>
            {OPERATORS.map((each) => (
              <option key={each.word} value={each.word}>
                {each.sign}
              </option>
            ))}
          </select>
          {operator !== "null" && (
            <input class="input" aria-label="Value" autofocus placeholder={operator === "in" ? "JFK,EWR" : relation.columns[column] === "timestamp" ? "2013-01-01T12:00:00Z" : "value"} value={value} onInput={(event) => setValue(event.currentTarget.value)} />
          )}
          <Button small kind="primary" type="submit">
            Add
          </Button>
          <Button small kind="quiet" onClick={() => setOpen(false)}>
            Cancel
          </Button>
        </form>
      ) : (
        <Button small icon="add" onClick={() => setOpen(true)}>
          Condition
        </Button>
      )}
    </div>
  );
}
