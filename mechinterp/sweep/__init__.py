"""Many runs from one description: planned, trained side by side, resumed, and put in one table."""
