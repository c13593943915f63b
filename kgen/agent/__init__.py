"""Proposals: candidates that a language model, a folder of files or a search proposes, judged and kept as all others
are.

    context (problem, device, plans, best, failures) ── proposer.propose ──> proposals
    proposal ──> candidate ── evaluator ──> verdict ──> store, and proposer.tell

A proposal is a choice among kgen's own parts (plan and parameters), which kgen renders, or the text of a file, which is
foreign.
"""
