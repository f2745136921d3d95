"""The SQLite file with the decisions: tables, connections for many threads, and errors that say what to do."""

from __future__ import annotations

import errno
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hfcomp.data.annotations.chain import begin_chain, check_chain, derive_states, differing_states
from hfcomp.data.annotations.entries import is_same_person

logger = logging.getLogger(__name__)
FORMAT, VERSION, WITHOUT_CHAINS = "hfcomp annotations", 2, 1
_APPEND_ONLY = ("log", "items", "chains")
# `chains` contains the hashes of `items` and `log` (see `hfcomp.data.annotations.chain`). `states` is derived from
# `items` and `log`. Two tables of counts are derived from all three: `tallies` counts items, and `work` counts the
# decisions that were not undone. `leases` and `drafts` contain work in progress.
SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE items (
        position INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, concept TEXT NOT NULL, content TEXT NOT NULL)""",
    """CREATE TABLE log (
        number INTEGER PRIMARY KEY, time REAL NOT NULL, person TEXT NOT NULL, item TEXT NOT NULL REFERENCES items (id),
        action TEXT NOT NULL, content TEXT NOT NULL, taken REAL, undoes INTEGER UNIQUE REFERENCES log (number))""",
    """CREATE TABLE chains (
        source TEXT NOT NULL, number INTEGER NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (source, number))
        WITHOUT ROWID""",
    """CREATE TABLE states (
        position INTEGER PRIMARY KEY REFERENCES items (position), concept TEXT NOT NULL, state TEXT NOT NULL,
        annotator TEXT, submission INTEGER, acceptance INTEGER, returned_to TEXT, returned_time REAL)""",
    """CREATE TABLE leases (
        position INTEGER PRIMARY KEY REFERENCES items (position), person TEXT NOT NULL, is_review INTEGER NOT NULL,
        taken REAL NOT NULL, expires REAL NOT NULL)""",
    """CREATE TABLE drafts (
        person TEXT NOT NULL, position INTEGER NOT NULL REFERENCES items (position), content TEXT NOT NULL,
        PRIMARY KEY (person, position)) WITHOUT ROWID""",
    """CREATE TABLE tallies (
        concept TEXT NOT NULL, state TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (concept, state))
        WITHOUT ROWID""",
    """CREATE TABLE work (
        person TEXT NOT NULL, action TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (person, action))
        WITHOUT ROWID""",
    "CREATE INDEX log_of_item ON log (item, number)",
    "CREATE INDEX log_of_person ON log (person, action, number)",
    "CREATE INDEX leases_of_person ON leases (person, is_review, taken)",
    "CREATE INDEX states_new ON states (position) WHERE state = 'open' AND returned_to IS NULL",
    "CREATE INDEX states_new_of_concept ON states (concept, position) WHERE state = 'open' AND returned_to IS NULL",
    "CREATE INDEX states_returned ON states (returned_to, position) WHERE state = 'open' AND returned_to IS NOT NULL",
    "CREATE INDEX states_to_review ON states (submission, annotator) WHERE state = 'annotated'",
    "CREATE INDEX states_to_review_of_concept ON states (concept, submission, annotator) WHERE state = 'annotated'",
    "CREATE INDEX states_accepted ON states (position) WHERE state = 'accepted'",
    """CREATE TRIGGER work_is_counted AFTER INSERT ON log WHEN NEW.undoes IS NULL BEGIN
        INSERT INTO work VALUES (NEW.person, NEW.action, 1)
        ON CONFLICT (person, action) DO UPDATE SET number = number + 1; END""",
    """CREATE TRIGGER undone_work_is_not_counted AFTER INSERT ON log WHEN NEW.undoes IS NOT NULL BEGIN
        UPDATE work SET number = number - 1 WHERE (person, action) =
        (SELECT person, action FROM log WHERE log.number = NEW.undoes); END""",
    """CREATE TRIGGER states_are_counted AFTER INSERT ON states BEGIN
        INSERT INTO tallies VALUES (NEW.concept, NEW.state, 1)
        ON CONFLICT (concept, state) DO UPDATE SET number = number + 1; END""",
    """CREATE TRIGGER states_are_counted_again AFTER UPDATE OF state ON states WHEN OLD.state <> NEW.state BEGIN
        UPDATE tallies SET number = number - 1 WHERE concept = OLD.concept AND state = OLD.state;
        INSERT INTO tallies VALUES (NEW.concept, NEW.state, 1)
        ON CONFLICT (concept, state) DO UPDATE SET number = number + 1; END""",
    *(
        f"CREATE TRIGGER {table}_keeps_{action.lower()} BEFORE {action} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        for table in _APPEND_ONLY
        for action in ("UPDATE", "DELETE")
    ),
    # INSERT OR REPLACE would delete a row without running its trigger.
    """CREATE TRIGGER log_keeps_rows BEFORE INSERT ON log WHEN EXISTS (SELECT 1 FROM log WHERE number = NEW.number)
        BEGIN SELECT RAISE(ABORT, 'log is append-only'); END""",
    """CREATE TRIGGER items_keep_rows BEFORE INSERT ON items
        WHEN EXISTS (SELECT 1 FROM items WHERE position = NEW.position)
        BEGIN SELECT RAISE(ABORT, 'items is append-only'); END""",
    """CREATE TRIGGER chains_keep_rows BEFORE INSERT ON chains
        WHEN EXISTS (SELECT 1 FROM chains WHERE source = NEW.source AND number = NEW.number)
        BEGIN SELECT RAISE(ABORT, 'chains is append-only'); END""",
)
_CHAIN_STATEMENTS = tuple(statement for statement in SCHEMA if " chains" in statement)
_PAUSE = 0.02
"""Seconds between retries of an operation for which SQLite does not wait."""


class Database:
    """A SQLite file in WAL mode, for many threads and processes; created if missing.

    Do not use it in a forked process: open the file again there.

    Args:
        path: Database file.
        wait_seconds: Seconds to wait for another writing process before a call fails.

    Raises:
        ValueError: If the file is not such a database, is damaged, or has another version.
        OSError: If the file cannot be read or written, or is locked.
    """

    # One thread at a time uses a connection, and then the next thread reuses it. A web server's threads come and go
    # and would leave their own connections open.

    def __init__(self, path: Path, *, wait_seconds: float = 10.0) -> None:
        self.path = path
        self._wait_seconds = wait_seconds
        self._idle: list[sqlite3.Connection] = []
        self._is_closed = False
        self._lock = threading.Lock()
        # Threads of this process queue on this lock, where waiting costs nothing. SQLite would poll.
        self._writer = threading.Lock()
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "No such folder for the database", str(path.parent))
        try:
            with self._connection() as connection:
                self._prepare(connection)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection for reading. Each statement sees what was committed before it began."""
        with self._connection() as connection:
            yield connection

    @contextmanager
    def writing(self, *, is_durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Yields a connection inside a transaction, which is committed when the block ends and rolled back on error.

        A transaction that is not durable is not forced to disk: it survives a killed process, but not always a power
        failure.

        Raises:
            BlockingIOError: If another program locks the file for longer than `wait_seconds`.
            OSError: If the disk is full or failing. In both cases nothing was changed, and the call can be repeated.
            ValueError: If the file is damaged.
        """
        if not self._writer.acquire(timeout=self._wait_seconds):
            raise self._lock_error()
        try:
            with self._connection() as connection:
                connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
                # Take the write lock at once. A transaction that reads first and then writes would fail, because
                # SQLite can't wait for a lock while the transaction holds an older view of the file.
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
        finally:
            self._writer.release()

    def close(self) -> None:
        """Closes all connections; a connection in use is closed after its call."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = None
        try:
            connection = self._take()
            yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's message may quote damaged text
            if connection is not None:  # it may be in any state
                connection.close()
                connection = None
            raise self._reword(error) from error
        finally:
            if connection is not None:
                self._give_back(connection)

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._is_closed:
                raise ValueError(f"{self.path} was closed. Open it again.")
            if self._idle:
                return self._idle.pop()
        connection = sqlite3.connect(
            self.path, timeout=self._wait_seconds, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA foreign_keys = ON")
        connection.create_function("is_same_person", 2, is_same_person, deterministic=True)
        return connection

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            with suppress(sqlite3.Error):  # closing the connection has the same effect
                connection.execute("ROLLBACK")
        with self._lock:
            if not self._is_closed and not connection.in_transaction:
                self._idle.append(connection)
                return
        connection.close()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Checks a file before writing to it, creates the tables of a new file, and begins missing chains."""
        connection.execute("BEGIN")  # a consistent view, while others write
        is_right = self._check(connection)
        connection.execute("ROLLBACK")
        self._switch_to_wal(connection)
        connection.execute("BEGIN IMMEDIATE")
        if not self._tables(connection):  # no other process created them first
            for statement in SCHEMA:
                connection.execute(statement)
            rows = [("format", FORMAT), ("version", str(VERSION))]
            connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        elif self._version(connection) == WITHOUT_CHAINS:
            for statement in _CHAIN_STATEMENTS:
                connection.execute(statement)
            begin_chain(connection, self.path)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'version'", (str(VERSION),))
        if not is_right:
            derive_states(connection)
        connection.execute("COMMIT")
        if not is_right:
            logger.warning(
                "%s: some states or counts did not match the log. The log is intact, and they were derived from it "
                "again. The disk may be failing: keep a backup.",
                self.path,
            )

    def _check(self, connection: sqlite3.Connection) -> bool:
        """Checks whether states and counts follow from the log; raises if the file is damaged or of another kind."""
        # Nothing is written before this check, so a file passed by mistake stays as it was.
        if not self._tables(connection):
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            if pages > 1:
                raise sqlite3.DatabaseError("its tables are missing")
            return True
        version = self._version(connection)
        if (problem := connection.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(problem)
        # The triggers that keep the log append-only are part of the schema, so a file without them is not trusted.
        statements = {" ".join(sql.split()) for (sql,) in connection.execute("SELECT sql FROM sqlite_master") if sql}
        expected = SCHEMA if version == VERSION else [sql for sql in SCHEMA if sql not in _CHAIN_STATEMENTS]
        if statements != {" ".join(sql.split()) for sql in expected}:
            raise sqlite3.DatabaseError("its tables are not the original ones")
        if version == VERSION:
            check_chain(connection, self.path)
        return differing_states(connection) is None

    def _tables(self, connection: sqlite3.Connection) -> set[str]:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _version(self, connection: sqlite3.Connection) -> int:
        try:
            meta = dict(connection.execute("SELECT key, value FROM meta"))
        except sqlite3.OperationalError:  # no such table or column
            meta = {}
        if meta.get("format") != FORMAT:
            raise ValueError(f"{self.path} is not an annotation database. Choose another file or folder.")
        if meta.get("version") not in (str(VERSION), str(WITHOUT_CHAINS)):
            raise ValueError(
                f"{self.path}: found database version {meta.get('version')}, expected {VERSION}. Open it with the "
                "version of hfcomp that wrote it, or upgrade hfcomp."
            )
        return int(meta["version"])

    def _switch_to_wal(self, connection: sqlite3.Connection) -> None:
        end = time.monotonic() + self._wait_seconds
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:  # if two processes switch at once, one fails immediately
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(_PAUSE)
        if mode != "wal":
            problem = f"Write-ahead logging is not available on this file system (mode {mode})"
            raise OSError(errno.ENOTSUP, problem, str(self.path))

    def _lock_error(self) -> BlockingIOError:
        return BlockingIOError(
            f"{self.path} has been locked by another program for over {self._wait_seconds:g} s. Nothing is lost; try "
            "again."
        )

    def _reword(self, error: Exception) -> Exception:
        """Rewords an SQLite error for users. Errors of our own code, such as a row that a trigger rejects, stay."""
        code, path = _code(error), str(self.path)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._lock_error()
        if code == sqlite3.SQLITE_FULL:
            problem = "No space left, and nothing from this call was saved. Free some space and try again"
            return OSError(errno.ENOSPC, problem, path)
        if code == sqlite3.SQLITE_IOERR:
            return OSError(errno.EIO, f"Reading or writing failed ({error}); nothing from this call was saved", path)
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH):
            return PermissionError(errno.EACCES, f"The database cannot be opened for writing ({error})", path)
        if not isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.InterfaceError):
            error_text = " ".join(str(error).split())
            return ValueError(
                f"{path} is damaged or is not an SQLite database ({error_text}). Copy it together with its -wal file; "
                f"`sqlite3 {self.path.name} .recover | sqlite3 recovered.sqlite` saves the readable rows."
            )
        return error


def _code(error: Exception) -> int | None:
    # The primary code is the low byte of the extended one.
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
