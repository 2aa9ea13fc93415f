"""Who may do what: keys, tokens, roles, scopes, the audit log."""
