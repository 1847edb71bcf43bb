"""Starts, freezes, kills and stops real RabbitMQ brokers, each with ports and a folder of its own."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import Any

from tests.servers.epmd import Epmd
from tests.servers.processes import descendants, stop_all, wait_until_ended, wake_all
from tests.servers.programs import rabbitmq_program
from tests.servers.rabbitmq_management import Management
from tests.servers.server import HOST, Server, free_ports

PATIENCE = 60.0  # seconds: a start takes 5, and more where others work, too
TAKEN = ("eaddrinuse", "address already in use", "could not bind to distribution port")
READY = "Server startup complete"
# Messages whose dead-lettering fails are tried again after 5 seconds, not after 180, and 512 at once, not 32.
TUNED = "{dead_letter_worker_publisher_confirm_timeout, 5000}, {dead_letter_worker_consumer_prefetch, 512}"
# Queues report to the HTTP API twice a second, not every 5 seconds.
PROMPT = "{collect_statistics_interval, 500}, {quorum_tick_interval, 500}"
ON_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false"
ASLEEP = "+sbwt none +sbwtdcpu none +sbwtdio none"  # while it has nothing to do, and not after a while of looking
SETTINGS = (
    "log.console = true",
    "log.console.level = info",
    "log.file = false",
    "raft.wal_max_size_bytes = 67108864",  # the default takes 1 GB of memory
)


class CommandFailed(Exception):
    """A command of RabbitMQ ended with an error."""


class RabbitServer(Server):
    """A broker of its own, for `with`: it runs inside the block, and nothing is left of it afterwards.

    Everybody on this machine may log in as `guest`. `lines` are added to its rabbitmq.conf. `tuned` sets in its
    advanced.config what makes dead-lettering at least once go on soon after a restart, `prompt` what makes the HTTP API tell of
    changes soon. With `management` it has the HTTP API.
    Brokers with the same `epmd` can be nodes of one cluster; each has a `name` of its own there.
    """

    kind = "rabbitmq"

    def __init__(
        self,
        *,
        tuned: bool = False,
        prompt: bool = False,
        management: bool = False,
        lines: Sequence[str] = (),
        name: str = "bide",
        epmd: Epmd | None = None,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(patience)
        self.lines = list(lines)
        self.node = f"{name}@localhost"
        self._advanced = ", ".join([*([TUNED] if tuned else []), *([PROMPT] if prompt else [])])
        self._has_management = management
        self._shared_epmd = epmd
        self._epmd: Epmd | None = None
        self._ours = ExitStack()
        self._distribution_port = 0
        self._management_port = 0
        self._said_before = 0

    @property
    def url(self) -> str:
        """Of the virtual host `/`."""
        return self.url_of("")

    def url_of(self, host: str) -> str:
        """Of a virtual host."""
        return f"amqp://guest:guest@{HOST}:{self.port}/{host}"

    @property
    def ports(self) -> Sequence[int]:
        """All on which something listens."""
        management = [self._management_port] if self._has_management else []
        return [self.port, self._distribution_port, *management, self.epmd.port]

    @property
    def epmd(self) -> Epmd:
        assert self._epmd is not None, "the server is started by `with`"
        return self._epmd

    @property
    def management(self) -> Management:
        assert self._has_management, "this broker was made without management"
        return Management(self._management_port)

    @property
    def management_url(self) -> str:
        assert self._has_management, "this broker was made without management"
        return f"http://guest:guest@{HOST}:{self._management_port}"

    def ctl(self, *arguments: str, program: str = "rabbitmqctl", timeout: float = PATIENCE) -> str:
        """What a command says: `ctl("list_queues", "name")`, or of another program, `rabbitmq-queues`. It takes a second."""
        command = [rabbitmq_program(program), "--quiet", "--node", self.node, *arguments]
        with TemporaryFile() as said:  # not a pipe, which a process that the command leaves behind would keep open
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=timeout,
                check=False,
            )
            said.seek(0)
            text = said.read().decode(errors="replace")
        if done.returncode:
            raise CommandFailed(f"{program} {' '.join(arguments)}: exit code {done.returncode}\n{text}")
        return text

    def save_declared(self) -> None:
        """Put on the disk what was declared in the last seconds: a kill loses such queues, with all that was confirmed."""
        self.ctl("eval", "[ok = dets:sync(Table) || Table <- dets:all()], ok.")

    def stop(self) -> None:
        """Shut it down in good order. No harm if it has ended."""
        if self._process is not None:
            if self.running:
                helpers = descendants(self.pid)
                self.thaw()  # a frozen one hears nothing
                self._process.terminate()
                try:
                    self._process.wait(self._patience)
                except subprocess.TimeoutExpired:
                    self.kill()
                wait_until_ended(helpers, self._patience)
            self._process = None

    def kill(self) -> None:
        """End it as a power cut would: it saves nothing and says nothing. Its helper processes end with it."""
        assert self._process is not None, "the server is not running"
        helpers = descendants(self.pid)
        self._process.kill()
        self._process.wait(self._patience)
        wait_until_ended(helpers, self._patience)
        self._process = None

    def freeze(self) -> None:
        """From now on it keeps its connections and does nothing, until `thaw`."""
        stop_all([self.pid], self._patience)

    def thaw(self) -> None:
        wake_all([self.pid])

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._ours.close()

    def _begin(self) -> None:
        self._epmd = self._shared_epmd or self._ours.enter_context(Epmd())
        super()._begin()

    def _give_up(self) -> None:
        if self._process is not None:
            self.kill()  # its data goes, so it need not be put in order

    def _choose_ports(self) -> None:
        self._port, self._distribution_port, self._management_port = free_ports(3)

    def _write_settings(self) -> None:
        plugins = "rabbitmq_management" if self._has_management else ""
        self._write("enabled_plugins", f"[{plugins}].\n")
        self._write("advanced.config", f"[{{rabbit, [{self._advanced}]}}].\n")
        self._write("rabbitmq.conf", "".join(f"{line}\n" for line in self._settings()))
        self._write("env.conf", "")  # or it would read the one in /etc

    def _settings(self) -> list[str]:
        place = [f"management.tcp.ip = {HOST}", f"management.tcp.port = {self._management_port}"]
        return [*SETTINGS, *(place if self._has_management else []), *self.lines]

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def _command(self) -> Sequence[str]:
        return [rabbitmq_program("rabbitmq-server"), "-noinput"]

    def _run_as(self) -> Mapping[str, Any]:
        return {"env": self._environment()}

    def _environment(self) -> dict[str, str]:
        places = {
            "MNESIA_BASE": "mnesia",
            "LOG_BASE": "log",
            "PID_FILE": "pid",
            "SCHEMA_DIR": "schema",
            "GENERATED_CONFIG_DIR": "generated",
            "CONF_ENV_FILE": "env.conf",
            "ENABLED_PLUGINS_FILE": "enabled_plugins",
            "CONFIG_FILE": "rabbitmq.conf",
            "ADVANCED_CONFIG_FILE": "advanced.config",
        }
        told = {
            "NODENAME": self.node,
            "NODE_IP_ADDRESS": HOST,
            "NODE_PORT": str(self.port),
            "DIST_PORT": str(self._distribution_port),
            "SERVER_ADDITIONAL_ERL_ARGS": f"{ON_LOOPBACK} {ASLEEP}",
            "CTL_ERL_ARGS": ON_LOOPBACK,
            "CTL_DIST_PORT_MIN": "0",  # any: there are eleven otherwise, for all commands of this machine
            "CTL_DIST_PORT_MAX": "0",
            "ALLOW_INPUT": "1",  # so that it runs in the process that is started here, without a shell before it
            **{name: str(self.folder / file) for name, file in places.items()},
        }
        return self.epmd.environment | {f"RABBITMQ_{name}": value for name, value in told.items()}

    def _launch(self) -> None:
        self._said_before = len(self.log_text())
        super()._launch()

    def _answers(self) -> bool:
        """Whether it takes clients. A port that is open says less: exchanges come after it."""
        return READY in self.log_text()[self._said_before :]

    def _port_was_taken(self, said: str) -> bool:
        return any(sign in said for sign in TAKEN)
