"""The aggregates as declared. ``engine.operators.aggregation`` computes them."""
