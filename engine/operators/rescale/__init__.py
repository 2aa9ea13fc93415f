"""Another number of tasks for kept state: what each new task takes over from the tasks before."""
