"""What a statement is bound against: the session, names, types, properties, and how faults are told."""
