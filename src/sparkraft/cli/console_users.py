"""`console-users`: the file of users that sign in to a console. Ours; Kafka has no such tool."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, exactly_one, only_with
from sparkraft.console.roles import role_named
from sparkraft.console.users import OTHERS, Password, User, check_name, parse_users, write_users

PASSWORD_MIN = 8


def main(argv: list[str]) -> int:
    options = Options("console-users", "Lists, adds and removes users of `sparkraft console`.")
    options.value("--file", about="the file of users", required=True, metavar="FILE")
    options.flag("--list", "print the users and their roles")
    options.value(
        "--set",
        about="add a user, or change one; the password is read from the terminal, or from the first"
        f" line of standard input; {OTHERS} stands for all other users of a proxy",
        metavar="NAME",
    )
    options.value("--role", about="viewer, reader or editor", metavar="ROLE")
    options.flag("--no-password", "a proxy authenticates the user")
    options.value("--remove", about="remove a user", metavar="NAME")
    values = options.parse(argv)
    action = exactly_one(values, ["--list", "--set", "--remove"])
    if action != "--set":
        only_with(values, ["--role", "--no-password"], "--set")
    path = Path(values.file)
    users = _read(path, may_be_absent=action == "--set")
    if action == "--list":
        for user in users.values():
            password = "" if user.password is not None else "  no password"
            print(f"{user.role.name.lower():8}{user.name}{password}")
        return 0
    if action == "--remove":
        if users.pop(values.remove, None) is None:
            raise CommandError(f"{path} has no user {values.remove!r}")
    else:
        user = _user(values.set, values.role, has_password=not values.no_password)
        users[user.name] = user
    write_users(path, users)
    return 0


def _read(path: Path, *, may_be_absent: bool) -> dict[str, User]:
    try:
        return parse_users(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if may_be_absent:
            return {}
        raise CommandError(f"{path}: {error.strerror}") from error
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: {error}") from error


def _user(name: str, role: str | None, *, has_password: bool) -> User:
    if role is None:
        raise UsageError("--set needs --role viewer, reader or editor")
    try:
        check_name(name)
        found = role_named(role)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not has_password or name == OTHERS:
        return User(name, found)
    return User(name, found, Password.of(_password(name)))


def _password(name: str) -> str:
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password of {name}: ")
        if getpass.getpass("Again: ") != password:
            raise CommandError("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < PASSWORD_MIN:
        raise CommandError(f"the password has less than {PASSWORD_MIN} characters")
    return password
