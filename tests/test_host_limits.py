"""`doctor --connections N`: what this machine lacks for so many connections; kernel settings are put back as they were."""

import json

import pytest

from wsbench.host import machine, sysctls
from wsbench.records.errors import TrialFailed, UserError
from wsbench.run import host_limits
from wsbench.servers import serving

SETTINGS = {
    "fs.file-max": "2400000",
    "fs.nr_open": "1048576",
    "net.core.netdev_max_backlog": "1000",
    "net.core.somaxconn": "4096",
    "net.ipv4.tcp_mem": "280000 380000 570000",
    "net.ipv4.ip_local_port_range": "32768 60999",
    "net.netfilter.nf_conntrack_max": "262144",
    "net.netfilter.nf_conntrack_count": "0",
}


@pytest.fixture
def host(monkeypatch):
    """A machine of 24 GiB whose settings can be changed."""
    settings = dict(SETTINGS)
    monkeypatch.setattr(machine, "sysctl", settings.get)
    monkeypatch.setattr(machine, "file_limit", lambda: 20_000)
    monkeypatch.setattr(machine, "memory_available", lambda: 22 << 30)
    monkeypatch.setattr(machine, "placement", lambda: machine.Placement([0], [1]))
    return settings


def lacks(connections: int) -> dict[str, machine.Finding]:
    return {one.what: one for one in host_limits.examine(connections).findings if not one.fine}


def test_a_few_connections_lack_nothing(host):
    assert lacks(1000) == {}


def test_a_million_takes_processes_and_room_for_unread_data(host):
    missing = lacks(1_000_000)
    assert set(missing) == {"files per process", "net.core.netdev_max_backlog", "net.ipv4.tcp_mem"}
    assert "1 engine and 52 server processes" in missing["files per process"].found
    wanted = {"net.core.netdev_max_backlog": "100000", "net.ipv4.tcp_mem": "750000 1125000 1500000"}
    assert host_limits.examine(1_000_000).wanted == wanted
    assert "sysctl -w net.ipv4.tcp_mem='750000 1125000 1500000'" in missing["net.ipv4.tcp_mem"].advice


def test_memory_is_that_of_both_ends(host, monkeypatch):
    monkeypatch.setattr(machine, "memory_available", lambda: 8 << 30)
    found = lacks(1_000_000)["memory"]
    assert "leaves a server nothing" in found.found
    number = int(found.advice.split("about ")[1].split(" ")[0].replace(",", ""))
    assert 500_000 < number < 800_000


def test_what_is_left_for_a_server_is_what_all_others_leave(host, monkeypatch):
    monkeypatch.setattr(machine, "memory_available", lambda: 2 << 30)
    (found,) = (one.found for one in host_limits.examine(1_000).findings if one.what == "memory")
    used = 1_000 * (2 * host_limits.KERNEL_BYTES + host_limits.ENGINE_BYTES) + host_limits.ENGINE_PROCESS_BYTES
    assert f"leaves a server {((1 << 30) - used) / 1_000 / 1024:.1f} KiB per connection" in found


def test_a_firewall_that_follows_connections_must_have_room_for_them(host):
    host["net.netfilter.nf_conntrack_count"] = "17"
    assert "nf_conntrack_max=1010017" in lacks(1_000_000)["connection tracking"].advice
    assert "connection tracking" not in lacks(100_000)


def test_without_a_limit_one_process_is_enough_but_not_one_address(host, monkeypatch):
    monkeypatch.setattr(machine, "file_limit", lambda: None)
    missing = lacks(1_000_000)
    assert "files per process" not in missing
    assert "36 source addresses" in missing["local ports"].found


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Kernel settings in a folder, and nobody's state but the test's."""
    for name, value in {"net/ipv4/tcp_mem": "1\t2\t3\n", "fs/file-max": "100\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(value)
    monkeypatch.setattr(sysctls, "PROC", tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_what_was_set_is_put_back_as_it_was_before_the_first_time(kernel):
    sysctls.put({"net.ipv4.tcp_mem": "10 20 30"})
    sysctls.put({"net.ipv4.tcp_mem": "40 50 60", "fs.file-max": "200"})
    assert (kernel / "net/ipv4/tcp_mem").read_text() == "40 50 60"
    back, left = sysctls.restore()
    assert {one.name: one.before for one in back} == {"net.ipv4.tcp_mem": "1 2 3", "fs.file-max": "100"}
    assert (left, (kernel / "net/ipv4/tcp_mem").read_text(), (kernel / "fs/file-max").read_text()) == (
        [],
        "1 2 3",
        "100",
    )
    assert sysctls.restore() == ([], [])


def test_what_somebody_else_has_changed_since_stays(kernel):
    sysctls.put({"fs.file-max": "200"})
    (kernel / "fs/file-max").write_text("300\n")
    back, left = sysctls.restore()
    assert ([one.name for one in back], [one.name for one in left]) == ([], ["fs.file-max"])
    assert (kernel / "fs/file-max").read_text() == "300\n"


def test_a_setting_that_may_not_be_changed_is_one_line_and_leaves_nothing_to_put_back(kernel):
    (kernel / "fs/file-max").unlink()
    (kernel / "fs/file-max").symlink_to("/proc/version")
    with pytest.raises(UserError, match=r"fs\.file-max cannot be changed"):
        sysctls.put({"fs.file-max": "200"})
    assert not sysctls.kept_in().exists()


def test_after_a_restart_there_is_nothing_to_put_back(kernel):
    sysctls.put({"fs.file-max": "200"})
    kept = json.loads(sysctls.kept_in().read_text())
    sysctls.kept_in().write_text(json.dumps({**kept, "boot": "another"}))
    assert sysctls.restore() == ([], [])


def test_doctor_tells_of_connections_and_changes_nothing_unasked(wsbench):
    done = wsbench("doctor", "--connections", "1000")
    assert done.returncode == 0, done.stderr
    assert "leaves a server" in done.stdout
    assert wsbench("doctor", "--set").stderr == "wsbench: --set needs --connections N\n"


def test_a_trial_ends_before_the_machine_has_no_memory_left(monkeypatch):
    monkeypatch.setattr(machine, "memory_available", lambda: serving.MEMORY_FLOOR)
    serving.require_memory()
    monkeypatch.setattr(machine, "memory_available", lambda: 100 << 20)
    with pytest.raises(TrialFailed, match="100 MiB left, the trial ends below 768 MiB"):
        serving.require_memory()
