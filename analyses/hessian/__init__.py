"""The loss around a checkpoint: its gradient, its Hessian's spectrum, what is measured."""
