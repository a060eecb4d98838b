"""What is dropped from the directory once it is durable: bottom up, each step acknowledged and repeatable (R5, R13)."""

from __future__ import annotations

from uuid import UUID

from stacksaga_flask.engine.node import Node
from stacksaga_flask.store.contract import DeletePointer, Drop, Path


def drop_bucket(node: Node, path: Path, token: int, gone: list[UUID]) -> None:
    """Tier 5 → its row of tier 4 → if no bucket is left: the row of tier 3.

    Args:
        node: This process.
        path: The bucket.
        token: Token of its instance.
        gone: Its pointers that are to be deleted by their ids, where epochs fence.

    Raises:
        StoreError: It was done in part or not at all.
    """
    store = node.store
    if store.transactional:
        store.apply(*_deletes(node, path, gone), _drop(node, 5, path, token), _drop(node, 4, path, token))
    else:
        store.apply(_drop(node, 5, path, token))
        store.apply(_drop(node, 4, path, token))
    if next(iter(store.buckets(path.date, path.window, path.instance_id)), None) is None:
        drop_instance(node, path, token)


def drop_instance(node: Node, path: Path, token: int) -> None:
    """The row of tier 3 of an instance that has no bucket in the window.

    Raises:
        StoreError: It may still be there.
    """
    node.store.apply(_drop(node, 3, path, token))


def delete_pointers(node: Node, path: Path, gone: list[UUID]) -> None:
    """Pointers of a bucket by their ids.

    Raises:
        StoreError: Some may still be there.
    """
    node.store.apply(*_deletes(node, path, gone))


def _drop(node: Node, tier: int, path: Path, token: int) -> Drop:
    return Drop(tier=tier, path=path, instance_token=token, timestamp=node.grid.opens(path))


def _deletes(node: Node, path: Path, gone: list[UUID]) -> list[DeletePointer]:
    return [node.writer.delete(path, transaction_id) for transaction_id in gone]
