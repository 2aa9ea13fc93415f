/** Why a query or its delivery does not do what it shall: what is in the way, what helps, and the code to look up. */
import { useEffect, useState } from "preact/hooks";
import { api } from "~/api/client";
import { CodeLink, plain } from "./ErrorPanel";

const cures = new Map<string, Promise<string | null>>();

/** The cure of a code, asked for once. */
function cureOf(code: string): Promise<string | null> {
  const known = cures.get(code);
  if (known !== undefined) return known;
  const asked = api
    .get("/v1/errors/{code}", { path: { code } })
    .then((entry) => entry.cure)
    .catch(() => {
      cures.delete(code); // the reason stands without it, and the next look asks again
      return null;
    });
  cures.set(code, asked);
  return asked;
}

/** Says nothing that the code's cure could add. */
const SILENT = /^(See the detail\.?)$/;

export function Reason({ reason, children }: { reason: { code: string; detail: string; cure?: string }; children?: preact.ComponentChildren }) {
  const [asked, setAsked] = useState<string | null>(null);
  useEffect(() => {
    let isGone = false;
    setAsked(null);
    if (reason.cure === undefined) void cureOf(reason.code).then((text) => isGone || setAsked(text));
    return () => {
      isGone = true;
    };
  }, [reason.code, reason.cure]);
  const cure = reason.cure ?? asked;
  return (
    <div class="reason">
      <p>{plain(reason.detail)}</p>
      {cure !== null && !SILENT.test(cure) && (
        <p>
          <span class="muted">What helps:</span> {plain(cure)}
        </p>
      )}
      <p class="small">
        <CodeLink code={reason.code} />
        {children}
      </p>
    </div>
  );
}
