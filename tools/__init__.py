"""What builds and checks the project, and is not part of it: the guide, the generated client, moves of modules."""
