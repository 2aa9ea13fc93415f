"""Permissions: keys, tokens, roles, scopes, the audit log."""
