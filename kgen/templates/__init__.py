"""Templates: each renders one schedule of loop programs for one kind of device.

A template is a folder: ``cuda/NAME/`` holds its Jinja2 text and ``template.py``, whose ``TEMPLATE`` is the interface to
everything else (:class:`kgen.codegen.template.Template`). A new schedule is a new folder. No module outside of the
folder knows its name, its parameters or its constraints.
"""
