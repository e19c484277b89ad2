"""The reduced models of the second paper: two scalars of attention, and encode-pool-decode.

Nothing is imported here; each module answers one question.

- `chain_sample`         sequences of fresh chains, with the row that the last state asks for
- `symmetric_attention`  the symmetry-constrained attention-only transformer (SA-Transformer)
- `symmetric_biases`     its weak biases c_beta and c_delta, simulated and in closed form
- `symmetric_descent`    its gradient descent: linear growth, then a cliff
- `cliff_time`           the time tau of the cliff against N / ln N
- `symmetric_landscape`  its loss over a grid of beta and delta
- `encode_pool_decode`   the minimal task-recognition model
- `pool_training`        its training
- `pool_capacity`        how many chains that model memorises, and whether it generalises
- `figures`              a table of any of these in, a plotly figure out (`law_figures` included)
"""
