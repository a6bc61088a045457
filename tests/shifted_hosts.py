"""Hosts in this process whose clocks are ahead of ours: the very class that Ray runs on a host, behind a connection that shifts its
clock.
"""

from wsbench.engine import program
from wsbench.records.errors import HostLost
from wsbench.run.cluster import hosts, instants, onhost
from wsbench.servers import serving

TWO = """
[[host]]
name = "one"
address = "10.0.0.1"
cpus = 2
[[host]]
name = "two"
address = "10.0.0.2"
cpus = 2
netns = "space"
"""

ALL_ROLES = """
[[host]]
name = "serve"
role = "serve"
address = "127.0.0.2"
cpus = [0]
[[host]]
name = "one"
address = "127.0.0.3"
cpus = [1]
[[host]]
name = "two"
address = "127.0.0.4"
cpus = [1]
"""


def cluster(tmp_path, text: str = TWO) -> hosts.Cluster:
    file = tmp_path / "cluster.toml"
    file.write_text(f'token = "{tmp_path}/token"\n{text}')
    return hosts.read(file)


class Shifted:
    """Hosts in this process whose clocks are ahead of ours by so much; `lose` makes one silent."""

    def __init__(self, ahead: dict[str, int]):
        self.ahead = ahead
        self.lost: str | None = None
        binary = str(program.require_binary())
        self.hosts = {name: onhost.OnHost(binary) for name in ahead}

    def call(self, host: str, method: str, *arguments, timeout_s: float = 5.0):
        if host == self.lost:
            raise HostLost(host, f"it did not answer for {timeout_s:g} s")
        ahead = self.ahead[host]
        if method == "hear":
            arguments = (instants.of_lines(arguments[0], ahead),)
        if method == "tell":
            number, line = arguments
            gate, t_ns = line.split(" ")
            arguments = (number, f"{gate} {int(t_ns) - ahead}")
        answer = getattr(self.hosts[host], method)(*arguments)
        if method == "time":
            return answer[0] + ahead, answer[1] + ahead
        if method == "read" and answer is not None:
            return instants.LOGS.get(arguments[0].rpartition("/")[2], instants.unmoved)(answer, -ahead)
        if method == "samples":
            return instants.of_lines(answer, -ahead)
        if method == "serve":
            ready = serving.Ready.model_validate_json(answer)
            return ready.model_copy(update={"started_ns": ready.started_ns + ahead}).model_dump_json()
        if method == "news":
            return {number: (instants.of_lines(lines, -ahead), code) for number, (lines, code) in answer.items()}
        return answer

    def leave(self) -> None:
        for host in self.hosts.values():
            host.leave()
