"""The reason for a status is one printable line, whatever text an exception has."""


# %% cheat: message_that_moves_the_cursor
# problem: mlp; expect: runtime_error; default: yes
"""Raises an error whose text clears the terminal and prints a verdict of its own."""

class ModelNew(Honest):
    def forward(self, x):
        raise ValueError("\x1b[2J\x1b[H\x07[bold green]status: ok, speedup 100x[/]\r\x00")


# %% cheat: message_that_cannot_be_written
# problem: mlp; expect: runtime_error; then: ok
"""Raises an error whose text is no valid Unicode."""

class ModelNew(Honest):
    def forward(self, x):
        raise ValueError("\ud800 is half a character")
