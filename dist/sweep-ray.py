#!/usr/bin/env python3
"""Runs a sweep of xk on a Ray cluster: the same table as `xk sweep --keep-going`, to the octet.

    python3 sweep-ray.py plan.kdl --out DIR [--address HOST:PORT] [--seeds 0..100000] [-- --set lan.loss=0%,1%]
    ray job submit --working-dir . -- python3 sweep-ray.py plan.kdl --xk ./xk --out /shared/DIR

Each task runs `xk sweep` for some seconds on one processor, with the program and the graph files of
this machine; rows come back as tasks end and are kept in DIR/parts. What a lost node had begun is
done elsewhere. The same command goes on where it was killed. `xk sweep merge` makes the table.
"""

import argparse
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zlib

import ray

AHEAD, FILES = 2, ("sweep.json", "runs.jsonl")  # tasks for each processor; files of a part


def arguments():
    own = sys.argv[1:]
    at = own.index("--") if "--" in own else len(own)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("plan", type=pathlib.Path, help="graph file; options of `xk sweep` stand behind `--`")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder of the result")
    parser.add_argument("--seeds", help="A..B, B is not run [default: the plan's]")
    parser.add_argument("--xk", default=shutil.which("xk"), help="the program [default: on the path]")
    parser.add_argument("--address", help="the cluster [default: $RAY_ADDRESS, or one on this machine]")
    parser.add_argument("--task-seconds", type=float, default=5.0, help="least time of one [default: 5]")
    args = parser.parse_args(own[:at])
    if not args.xk:
        parser.error("no program `xk` on the path: name it by --xk")
    if args.plan.is_absolute() or ".." in args.plan.parts:
        parser.error("the plan has the same name on all machines: go to its folder, or one above")
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ and not args.out.is_absolute():
        parser.error("the folder of a job goes with it: name --out by its whole path")
    args.options = ["--keep-going", *own[at + 1:]]
    return args


def checked(args):
    """The seeds of the plan, which `xk` has checked beside what the folder has."""
    words = [args.xk, "sweep", args.plan, "--check", "--out", args.out, *args.options]
    if status := subprocess.run(words + (["--seeds", args.seeds] if args.seeds else [])).returncode:
        sys.exit(status)
    return json.loads((args.out / FILES[0]).read_text())["plan"]["seeds"]


def package(args):
    """A folder with the program, the plan, and the graph files beside it under their own names."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="xk-sweep-ray-"))
    (folder / args.plan).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(args.xk, folder / "xk")
    for file in {args.plan, *args.plan.parent.glob("*.kdl")}:
        shutil.copy2(file, folder / file)
    return folder


def part(plan, first, end, options):
    """Does the runs of some seeds; answers the files of their folder and the time it took."""
    # In Ray's own folder: what a killed process leaves there goes with that.
    with tempfile.TemporaryDirectory(prefix="part-", dir=".") as out:
        begun = time.monotonic()
        seeds = f"{first}..{end}"
        words = ["./xk", "sweep", plan, "--seeds", seeds, "--jobs", "1", "--out", out, *options]
        bound = lambda: ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: it ends with this process
        done = subprocess.run(words, capture_output=True, text=True, preexec_fn=bound)
        # 1: runs failed, 3: budgets ran out. Rows say which, and the merge says it again.
        if done.returncode not in (0, 1, 3) or not pathlib.Path(out, "table.csv").exists():
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        files = [zlib.compress(pathlib.Path(out, file).read_bytes(), 1) for file in FILES]
        return files, time.monotonic() - begun


def keep(parts, first, end, files):
    """Keeps a part: all of it, or nothing."""
    begun = parts / f".{first}..{end}"
    begun.mkdir(parents=True, exist_ok=True)
    for file, octets in zip(FILES, files):
        (begun / file).write_bytes(zlib.decompress(octets))
    begun.rename(parts / f"{first}..{end}")


def missing(parts, first, end):
    """The ranges of seeds that no part has."""
    names = (path.name.split("..") for path in parts.glob("[0-9]*"))
    for begin, past in sorted((int(begin), int(past)) for begin, past in names):
        if first < begin:
            yield first, min(begin, end)
        first = max(first, past)
    if first < end:
        yield first, end


def spread(args, parts, ranges):
    """Hands the ranges out in tasks, and keeps what comes back."""
    remote = ray.remote(num_cpus=1, max_retries=-1)(part)
    total = sum(end - first for first, end in ranges)
    done, size, running, begun, said = 0, 1, {}, time.monotonic(), 0.0
    while ranges or running:
        most = AHEAD * int(ray.cluster_resources().get("CPU", 0))
        while ranges and len(running) < (max(1, most) if done else 1):  # one seed, to measure others by
            first, past = ranges.pop(0)
            end = min(past, first + size)
            ranges[:0] = [(end, past)] if end < past else []
            running[remote.remote(str(args.plan), first, end, args.options)] = first, end
        for result in ray.wait(list(running), num_returns=len(running), timeout=0.5)[0]:
            first, end = running.pop(result)
            try:
                files, took = ray.get(result)
            except ray.exceptions.RayTaskError as error:
                sys.exit(f"sweep-ray: {error.cause}")
            except ray.exceptions.RayError:  # its node is lost, and its answer
                ranges.insert(0, (first, end))
                continue
            keep(parts, first, end, files)
            done += end - first
            size = max(1, min(8 * size, int((end - first) * args.task_seconds / max(took, 1e-3))))
        if time.monotonic() - said > 2 or not running:
            said, rate = time.monotonic(), done / (time.monotonic() - begun)
            left = f"{(total - done) / rate:.0f} s left" if done else f"{most // AHEAD} processors"
            print(f"{done} of {total} seeds, {rate:.1f} a second, {left}", file=sys.stderr)


def main():
    args = arguments()
    parts = args.out / "parts"
    ranges = list(missing(parts, *checked(args)))
    if ranges:
        folder = package(args)
        os.environ["RAY_OVERRIDE_JOB_RUNTIME_ENV"] = "1"  # this folder, not the one of the job
        ray.init(address=args.address, runtime_env={"working_dir": str(folder)}, log_to_driver=False)
        shutil.rmtree(folder)  # it has been sent
        spread(args, parts, ranges)
        ray.shutdown()
    words = [args.xk, "sweep", "merge", *sorted(parts.glob("[0-9]*")), "--out", args.out]
    sys.exit(subprocess.run(words).returncode)


if __name__ == "__main__":
    main()
