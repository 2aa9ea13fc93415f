"""HTTP at the edge: parse, call, answer. No rules and no SQL live here."""
