"""Rules of explanations: why there is no row yet for a key and a time, or why it is this one. Pure: they use committed facts."""
