"""A task: the total order of its records, the chain of its operators, its clocks."""
