"""The machine and its GPUs, from a made-up root and an NVML of our own."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from contracts.records import NodeFacts, Telemetry
from flows.cli import app
from flows.node import read_node
from flows.node.machine import fingerprint, iommu_mode, read_machine
from flows.node.speed import low_precision_factor, measure_speed
from flows.node.telemetry import Sampler, energy_j

from .fake_nvml import FakeNvml, NoDriver


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


CPUINFO = "".join(
    f"processor\t: {cpu}\nmodel name\t: Made CPU 9000\nphysical id\t: {cpu // 2}\ncore id\t: {cpu % 2}\nflags\t: fpu avx2 avx512_vnni\n\n"
    for cpu in range(4)
)
MACHINE = {
    "proc/cpuinfo": CPUINFO,
    "proc/meminfo": "MemTotal:       2113000000 kB\nMemAvailable:   2000000000 kB\nSwapTotal:             0 kB\n",
    "proc/cmdline": "quiet iommu=pt\n",
    "sys/devices/system/node/node0/cpulist": "0-1\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       1000 kB\n",
    "sys/devices/system/node/node1/cpulist": "2-3\n",
    "sys/block/nvme0n1/size": "2000000\n",
    "sys/block/nvme0n1/device/model": "Made Disk  \n",
    "sys/block/nvme0n1/device/numa_node": "1\n",
    "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
    "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
    "sys/class/infiniband/mlx5_0/device/numa_node": "-1\n",
    "sys/class/net/eth0/device/numa_node": "0\n",
    "sys/class/net/eth0/speed": "25000\n",
    "sys/class/net/lo/speed": "-1\n",
}


def test_machine_is_read_from_procfs_and_sysfs(tmp_path: Path) -> None:
    found = read_machine(write(tmp_path, MACHINE))
    assert (found["cpu_model"], found["cpu_threads"], found["cpu_cores"], found["cpu_sockets"]) == (
        "Made CPU 9000",
        4,
        4,
        2,
    )
    assert found["cpu_flags"] == ["avx2", "avx512_vnni"]
    assert found["ram_bytes"] == 2_113_000_000 * 1024
    assert found["numa_nodes"] == {
        "0": {"cpus": "0-1", "ram_bytes": 1_024_000},
        "1": {"cpus": "2-3", "ram_bytes": None},
    }
    assert found["nvme"] == [{"name": "nvme0n1", "bytes": 1_024_000_000, "model": "Made Disk", "numa": 1}]
    assert found["nics"] == [
        {"name": "mlx5_0", "kind": "InfiniBand", "gbit_s": 400.0, "numa": None},
        {"name": "eth0", "kind": "Ethernet", "gbit_s": 25.0, "numa": 0},
    ]
    assert found["iommu"] == "passthrough"


def test_a_bare_root_says_nothing_rather_than_zero(tmp_path: Path) -> None:
    found = read_machine(tmp_path)
    assert found["ram_bytes"] is None
    assert found["numa_nodes"] is None
    assert found["iommu"] is None
    assert found["is_virtual"] is None


@pytest.mark.parametrize(
    ("files", "mode"),
    [
        ({"sys/kernel/iommu_groups/0/type": "identity\n", "sys/kernel/iommu_groups/1/type": "identity\n"}, "passthrough"),
        ({"sys/kernel/iommu_groups/0/type": "DMA-FQ\n"}, "translated"),
        ({"sys/kernel/iommu_groups/0/type": "DMA\n", "proc/cmdline": "iommu=pt"}, "passthrough"),
        ({"proc/cmdline": "intel_iommu=off"}, "off"),
        ({"sys/class/iommu/dmar0/x": ""}, "translated"),
        ({"proc/cmdline": "quiet"}, None),
    ],
)  # fmt: skip
def test_iommu_mode_comes_from_groups_then_the_command_line(
    tmp_path: Path, files: dict[str, str], mode: str
) -> None:
    assert iommu_mode(write(tmp_path, files)) == mode


def test_node_id_is_of_the_kind_of_machine_not_of_the_machine() -> None:
    facts = {
        "cpu_model": "A",
        "cpu_threads": 8,
        "ram_bytes": 2.113e12,
        "gpu_names": ["H200"] * 2,
        "islands": [[0, 1]],
    }
    same = facts | {"ram_bytes": 2.112e12, "hostname_sha256": "other", "kernel": "other"}
    assert fingerprint(facts) == fingerprint(same)
    assert fingerprint(facts) != fingerprint(facts | {"gpu_names": ["H100"] * 2})


def test_ceilings_of_the_cpu_are_measured_and_kept() -> None:
    first = measure_speed()
    assert first["cpu_bandwidth_gb_s"] > 0.5
    assert first["cpu_gflops"] > 0.5
    assert first["cpu_cache_bandwidth_gb_s"] > 0.5
    assert measure_speed() is first
    assert low_precision_factor({"avx2"}) == 2.0
    assert low_precision_factor({"avx2", "avx512_vnni", "amx_int8"}) == 32.0


def test_a_node_without_gpus_is_a_node(tmp_path: Path) -> None:
    facts = read_node(NoDriver(), write(tmp_path, MACHINE))
    assert (facts["gpus"], facts["gpu_names"], facts["islands"], facts["numa"]) == (0, [], [], None)
    assert facts["driver"] is None
    record = NodeFacts(campaign="c", run_id="r", node_id=facts["node_id"], read_at="now", facts=facts)
    assert msgspec.json.decode(msgspec.json.encode(record), type=NodeFacts).facts["gpus"] == 0


def test_two_quads_by_nvml_are_two_islands(tmp_path: Path) -> None:
    facts = read_node(FakeNvml(), write(tmp_path, MACHINE))
    assert facts["gpus"] == 8
    assert facts["islands"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (facts["island_link"], facts["between"]) == ("NV18", "SYS")
    assert facts["numa"] == {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}
    assert (facts["driver"], facts["cuda"]) == ("580.159.04", "13.0")
    assert facts["gpu_details"][0]["memory_bandwidth_gb_s"] == 4916.7  # 2 x 3201 MHz x 6144 bit / 8
    assert facts["p2p"]["nvlink"][0] == ["X", "OK", "OK", "OK", "NS", "NS", "NS", "NS"]
    # links are up to the switch, yet the quads have no peer access over them
    assert facts["pairs_between"]["SYS"] == [[a, b] for a in range(4) for b in range(4, 8)]
    assert not any("passthrough" in warning for warning in facts["warnings"])
    assert json.dumps(facts)


def test_cross_socket_gpus_without_passthrough_are_warned_of(tmp_path: Path) -> None:
    facts = read_node(FakeNvml(), write(tmp_path, MACHINE | {"proc/cmdline": "", "sys/class/iommu/a/b": ""}))
    assert any("IOMMU is translated" in warning and "passthrough" in warning for warning in facts["warnings"])


def test_direct_links_are_counted_from_both_ends(tmp_path: Path) -> None:
    facts = read_node(FakeNvml(gpus=4, island=2, direct={(0, 1): 4, (2, 3): 12}), tmp_path)
    assert facts["islands"] == [[0, 1], [2, 3]]
    assert facts["island_links"] == ["NV4", "NV12"]
    assert facts["between"] == "SYS"


def test_a_mig_gpu_is_in_no_island_by_nvml(tmp_path: Path) -> None:
    facts = read_node(FakeNvml(gpus=4, overrides={("mig", 2): [1, 1]}), tmp_path)
    assert facts["islands"] == [[0, 1, 3]]
    assert facts["mig_gpus"] == [2]


@pytest.mark.parametrize(
    ("override", "value", "warning"),
    [
        ("processes", [4242, 4243], "GPU1 has 2 other processes"),
        ("ecc", [0, 0], "GPU1 runs with ECC off"),
        ("power_limit", 400_000, "GPU1 is limited to 400 W, below its default of 600 W"),
        ("application_clock", 1500, "GPU1 has its clock set to 1500 MHz"),
        ("reasons", 0x2, "GPU1 has its clock locked"),
        ("reasons", 0x40 | 0x8, "GPU1 is slowed down now: hw_slowdown, hw_thermal"),
        ("persistence", 0, "GPU1 is not in persistence mode"),
        ("name", "NVIDIA H100 NVL", "not of one kind"),
        ("p2p", 1, "not every pair of GPUs may read"),
        ("mig", [1, 1], "MIG"),
    ],
)
def test_what_disturbs_a_measurement_is_warned_of(
    tmp_path: Path, override: str, value: Any, warning: str
) -> None:
    quiet = read_node(FakeNvml(), tmp_path)["warnings"]
    assert not any(warning in said for said in quiet)
    loud = read_node(FakeNvml(overrides={(override, 1): value}), tmp_path)["warnings"]
    assert any(warning in said for said in loud)


def test_nvml_that_answers_little_gives_nulls(tmp_path: Path) -> None:
    kept = {
        "nvmlInit",
        "nvmlShutdown",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetName",
    }
    missing = {name for name in dir(FakeNvml) if name.startswith("nvml")} - kept
    facts = read_node(FakeNvml(gpus=2, missing=missing), tmp_path)
    assert facts["gpus"] == 2
    detail = facts["gpu_details"][0]
    assert all(value is None for key, value in detail.items() if key not in ("gpu", "name"))
    assert facts["islands"] == []
    assert facts["numa"] is None


def test_sampler_takes_every_field_of_the_record_and_shuts_nvml_down() -> None:
    nvml = FakeNvml()
    with Sampler([0, 5], 0.01, nvml) as sampler:
        assert len(sampler.samples) >= 2  # one of each GPU before the window opens
        time.sleep(0.05)
    assert {sample["gpu"] for sample in sampler.samples} == {0, 5}
    record = Telemetry(campaign="c", run_id="r", cell_id="x", **sampler.samples[0])
    assert (record.power_w, record.sm_clock_mhz, record.memory_used_mb) == (500.0, 1755, 2000.0)
    assert record.throttle_reasons == []
    assert nvml.is_open is False
    taken = sampler.take()
    assert taken
    assert sampler.samples == []


def test_sampler_without_gpus_yields_nothing() -> None:
    with Sampler(None, 0.01, NoDriver()) as sampler:
        pass
    assert sampler.samples == []
    with Sampler([], 0.01, FakeNvml()) as sampler:
        pass
    assert sampler.samples == []


def test_energy_is_the_counter_s_difference_else_power_over_time() -> None:
    def one(gpu: int, at_s: float, energy_mj: float | None, power_w: float | None) -> dict[str, Any]:
        return {"gpu": gpu, "at_ns": int(at_s * 1e9), "energy_mj": energy_mj, "power_w": power_w}

    counted = [one(0, 0, 1_000.0, 5.0), one(0, 2, 9_000.0, 5.0), one(1, 0, 0.0, 5.0), one(1, 2, 2_000.0, 5.0)]
    assert energy_j(counted) == 8.0 + 2.0
    assert energy_j([one(0, 0, None, 100.0), one(0, 2, None, 200.0)]) == 300.0
    assert energy_j([one(0, 0, None, None), one(0, 2, None, None)]) is None
    assert energy_j([]) is None


# The commands


def run(*arguments: str, text: str | None = None) -> Any:
    return CliRunner().invoke(app, list(arguments), input=text)


FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "node" / "topology"


def test_node_command_prints_the_shape_that_is_promised() -> None:
    done = run("node", "--topology", str(FIXTURES / "two_quads.txt"), "--json")
    facts = json.loads(done.stdout)
    assert list(facts)[:6] == ["gpus", "islands", "island_link", "between", "numa", "warnings"]
    assert facts["islands"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (
        "islands   {0,1,2,3} {4,5,6,7} by NV18"
        in run("node", "--topology", str(FIXTURES / "two_quads.txt")).stdout
    )


def test_node_command_reads_stdin_and_utf_16(tmp_path: Path) -> None:
    text = (FIXTURES / "mi300x.txt").read_text()
    assert json.loads(run("node", "--topology", "-", "--json", text=text).stdout)["island_link"] == "XGMI"
    (tmp_path / "t.txt").write_bytes(text.encode("utf-16"))
    assert json.loads(run("node", "--topology", str(tmp_path / "t.txt"), "--json").stdout)["gpus"] == 8


@pytest.mark.parametrize("name", ["gpu_rows_cut", "peer_matrix", "rocm_cut", "none"])
def test_node_command_refuses_with_exit_2(name: str) -> None:
    done = run("node", "--topology", str(FIXTURES / f"{name}.txt"))
    assert done.exit_code != 0
    assert getattr(done.exception, "exit_code", None) == 2


def test_node_command_reads_this_machine() -> None:
    done = run("node", "--json")
    facts = json.loads(done.stdout)
    assert facts["node_id"].startswith("node-")
    assert facts["cpu_bandwidth_gb_s"] > 0
    assert "measured" in run("node").stdout


def test_precision_command_prints_json_and_text(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"quantization_config": {"quant_method": "fp8"}, "torch_dtype": "bfloat16"}))
    assert json.loads(run("precision", str(config), "--json").stdout)["label"] == "fp8"
    assert "label     fp8" in run("precision", str(config)).stdout
    assert getattr(run("precision", str(tmp_path / "no")).exception, "exit_code", None) == 2
