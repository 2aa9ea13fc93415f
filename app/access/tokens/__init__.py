"""Tokens of an OpenID Connect issuer."""
