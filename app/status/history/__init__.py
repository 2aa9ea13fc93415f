"""What happened: events, runs, refused records."""
