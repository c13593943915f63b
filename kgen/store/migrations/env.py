"""What Alembic runs for every command: the caller's own connection, inside the caller's own transaction."""

from alembic import context

from kgen.store.models import Base
from kgen.store.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
