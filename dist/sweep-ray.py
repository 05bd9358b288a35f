#!/usr/bin/env python3
"""Runs a sweep of xk on a Ray cluster: the same table as `xk sweep`, to the octet.

    python3 sweep-ray.py plan.kdl --out DIR [--seeds 0..100000] [--address auto] [-- --set lan.loss=0%,1%]
    ray job submit --working-dir . -- python3 sweep-ray.py plan.kdl --out DIR

Each task runs `xk sweep` for some seconds on one processor, with the program and the graph files of
this machine; rows come back as tasks end and are kept in DIR/parts. What a lost node had begun is
done elsewhere. The same command goes on where it was killed. At the end `xk sweep merge` makes the
table. Ray 2.9 or later.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import ray

TASK_SECONDS = 5.0  # what a task costs Ray is nothing beside it
TRIAL = 8  # seeds of the first task, by which the others are measured
AHEAD = 4  # tasks that are handed out for each processor, at most
FILES = ("sweep.json", "runs.jsonl")


def arguments():
    own, rest = sys.argv[1:], []
    if "--" in own:
        at = own.index("--")
        own, rest = own[:at], own[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("plan", help="graph file with `sweep` in it, or options behind `--`")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder of the result")
    parser.add_argument("--seeds", default="0..100", help="A..B, B is not run [default: 0..100]")
    parser.add_argument("--xk", default=shutil.which("xk"), help="the program [default: on the path]")
    parser.add_argument("--address", default=None, help="the cluster [default: one on this machine]")
    parser.add_argument("--task-seconds", type=float, default=TASK_SECONDS)
    args = parser.parse_args(own)
    if not args.xk:
        parser.error("no program `xk` on the path: name it by --xk")
    seeds = re.fullmatch(r"(\d+)\.\.(=?)(\d+)", args.seeds.replace("_", ""))
    if not seeds:
        parser.error(f"--seeds {args.seeds}: expected a range such as 0..1000")
    args.first, args.end = int(seeds[1]), int(seeds[3]) + (seeds[2] == "=")
    if args.first >= args.end:
        parser.error(f"--seeds {args.seeds}: no seed is in it")
    args.options = rest
    return args


def package(args):
    """A folder with the program and all graph files beside the plan, under the plan's own name."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="xk-sweep-ray-"))
    shutil.copy2(args.xk, folder / "xk")
    plan = pathlib.Path(args.plan)
    name = pathlib.Path(plan.name) if plan.is_absolute() or ".." in plan.parts else plan
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    for file in plan.parent.glob("*.kdl"):
        shutil.copy2(file, (folder / name).parent / file.name)
    return folder, str(name)


def part(name, first, end, options):
    """Does the runs of some seeds; answers the files of their folder and the time it took."""
    with tempfile.TemporaryDirectory(prefix="xk-part-") as out:
        begun = time.monotonic()
        words = ["./xk", "sweep", name, "--seeds", f"{first}..{end}", "--jobs", "1", "--keep-going",
                 "--out", out, *options]
        pathlib.Path("xk").chmod(0o755)
        done = subprocess.run(words, capture_output=True, text=True)
        # 1: runs failed, 3: budgets ran out. Rows say which, and the merge says it again.
        if done.returncode not in (0, 1, 3) or not pathlib.Path(out, FILES[1]).exists():
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        files = {file: pathlib.Path(out, file).read_bytes() for file in FILES}
        return first, end, files, time.monotonic() - begun


def keep(parts, first, end, files):
    """Keeps a part: whole, or not at all."""
    whole, begun = parts / f"{first}..{end}", parts / f".{first}..{end}"
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True)
    for file, octets in files.items():
        (begun / file).write_bytes(octets)
    begun.rename(whole)


def missing(parts, first, end):
    """The ranges of seeds that no part has."""
    names = (re.fullmatch(r"(\d+)\.\.(\d+)", path.name) for path in parts.glob("[0-9]*"))
    for begin, past in sorted((int(name[1]), int(name[2])) for name in names if name):
        if first < begin:
            yield first, min(begin, end)
        first = max(first, past)
    if first < end:
        yield first, end


def main():
    args = arguments()
    folder, name = package(args)
    ray.init(address=args.address, runtime_env={"working_dir": str(folder)}, log_to_driver=False)
    remote = ray.remote(num_cpus=1, max_retries=-1)(part)
    parts = args.out / "parts"
    ranges = list(missing(parts, args.first, args.end))
    total = sum(end - first for first, end in ranges)
    done, size, running, begun = 0, TRIAL, set(), time.monotonic()
    while ranges or running:
        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        while ranges and len(running) < (most if done else 1):
            first, end = ranges.pop(0)
            if end - first > size:
                ranges.insert(0, (first + size, end))
                end = first + size
            running.add(remote.remote(name, first, end, args.options))
        ready, rest = ray.wait(list(running), timeout=10)
        running = set(rest)
        for result in ready:
            first, end, files, took = ray.get(result)
            keep(parts, first, end, files)
            done += end - first
            size = max(1, min(100_000, int((end - first) * args.task_seconds / max(took, 1e-3))))
        rate = done / max(time.monotonic() - begun, 1e-9)
        left = f"{(total - done) / rate:.0f} s left" if done else "measuring"
        print(f"{done} of {total} seeds, {rate:.1f} a second, {left}", file=sys.stderr, flush=True)
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
    folders = sorted(str(path) for path in parts.glob("[0-9]*"))
    sys.exit(subprocess.run([args.xk, "sweep", "merge", *folders, "--out", str(args.out)]).returncode)


if __name__ == "__main__":
    main()
