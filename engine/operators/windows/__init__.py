"""Windows: tumbling and hopping, session, sliding; every change, final results, corrections."""
