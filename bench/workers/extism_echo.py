"""The same echo as the plugin of the bench for extism, a host with an ABI of its own for core modules; by the peers' Python."""

from __future__ import annotations

import json
from statistics import median, quantiles
from time import perf_counter

import extism

CALLS, WARM = 3000, 300
ECHO = """
(module
  (import "extism:host/env" "input_length" (func $length (result i64)))
  (import "extism:host/env" "input_load_u64" (func $load (param i64) (result i64)))
  (import "extism:host/env" "input_load_u8" (func $load_byte (param i64) (result i32)))
  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
  (import "extism:host/env" "store_u64" (func $store (param i64 i64)))
  (import "extism:host/env" "store_u8" (func $store_byte (param i64 i32)))
  (import "extism:host/env" "output_set" (func $output (param i64 i64)))
  (func (export "echo") (result i32)
    (local $size i64) (local $to i64) (local $at i64)
    (local.set $size (call $length))
    (local.set $to (call $alloc (local.get $size)))
    (block $done
      (loop $words
        (br_if $done (i64.gt_u (i64.add (local.get $at) (i64.const 8)) (local.get $size)))
        (call $store (i64.add (local.get $to) (local.get $at)) (call $load (local.get $at)))
        (local.set $at (i64.add (local.get $at) (i64.const 8)))
        (br $words)))
    (block $end
      (loop $bytes
        (br_if $end (i64.ge_u (local.get $at) (local.get $size)))
        (call $store_byte (i64.add (local.get $to) (local.get $at)) (call $load_byte (local.get $at)))
        (local.set $at (i64.add (local.get $at) (i64.const 1)))
        (br $bytes)))
    (call $output (local.get $to) (local.get $size))
    (i32.const 0)))
"""


def main() -> None:
    began = perf_counter()
    plugin = extism.Plugin(ECHO.strip().encode())  # known by its first bytes
    made = perf_counter() - began
    given = json.dumps({"text": "x" * 1000}).encode()
    times = []
    for _ in range(WARM + CALLS):
        began = perf_counter()
        said = plugin.call("echo", given)
        times.append(perf_counter() - began)
        assert said == given
    taken = times[WARM:]
    print(json.dumps({"p50": median(taken) * 1e6, "p95": quantiles(taken, n=20)[-1] * 1e6, "made": made * 1e3}))


if __name__ == "__main__":
    main()
