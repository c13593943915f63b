"""The entry point of Alembic: it uses the connection and the transaction of the caller."""

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
