"""Kernel tasks: the kernels of a network, each tuned alone, kept in the database, and found again.

    plans of a design -> kernel tasks, each once -> units of several variants -> [build pool] -> [one worker: check,
    time]
    -> database, each result at once -> options by the sum of their tasks -> whole files -> [evaluator]

    parts.py       the steps of options, each with its task
    task.py        what a task is: one step of a plan, cut out of its network under canonical names
    unit.py        several variants of one task as one file
    subject.py     the worker's side: inputs, the float64 reference, checks and times
    bench.py       the parent's side of that worker
    tuner.py       which variants are tried, in which order, until when
    assembly.py    from the tasks' times to points of the search
    left.py        plans that leave some of their kernels to the library

Nothing here knows of designs, sweeps or problems: :mod:`kgen.tuning.network` makes the tasks of a design.
"""
