;; Notes in a folder, read through the host: a plugin as component text, by hand. `serai guest build` assembles it; no tool chain is
;; needed. README.md tells how to try it.
;;
;; A text that crosses the border of a component is a place in memory and a length. What is passed in was put there with `realloc`;
;; what is given back is told by a place where place and length stand. Nothing is freed: after each call the heap begins anew.

(component
  ;; -- what it needs of the host -------------------------------------------------------------------------------------------------
  ;; Only what plugin.toml asks for: a host may refuse a component that imports more.
  (import "yoi:host/fs@1.0.0" (instance $fs
    (export "read" (func (param "request-json" string) (result string)))))

  ;; -- memory, in a module of its own, since the host's functions need it before the code that calls them is there ----------------
  (core module $memory-code
    (memory (export "memory") 4)
    (global $next (mut i32) (i32.const 1024))
    (func (export "realloc") (param $old i32) (param $was i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
      (global.set $next (i32.add (local.get $at) (local.get $size)))
      (if (i32.gt_u (global.get $next) (i32.shl (memory.size) (i32.const 16))) (then unreachable)) ;; 64 KiB in, 64 KiB out: enough
      (memory.copy (local.get $at) (local.get $old) (local.get $was))
      (local.get $at))
    (func (export "reset") (param i32) (global.set $next (i32.const 1024))))
  (core instance $libc (instantiate $memory-code))
  (alias core export $libc "memory" (core memory $memory))
  (alias core export $libc "realloc" (core func $realloc))
  (alias core export $libc "reset" (core func $reset))
  (core func $read (canon lower (func $fs "read") (memory (core memory $memory)) (realloc (core func $realloc))))
  (core instance $host (export "read" (func $read)))

  ;; -- the code --------------------------------------------------------------------------------------------------------------------
  (core module $code
    (import "libc" "memory" (memory 4))
    (import "libc" "realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
    (import "host" "read" (func $read (param i32 i32 i32)))

    (global $started (mut i32) (i32.const 0))
    (global $heard (mut i32) (i32.const 0)) ;; what an instance keeps lives as long as it does
    (global $out (mut i32) (i32.const 0)) ;; where the answer begins, and where it ends so far
    (global $end (mut i32) (i32.const 0))

    ;; 16: what an export gives back. 24: what the host gave back. The texts:
    (data (i32.const 64) "wat_count")
    (data (i32.const 80) "wat_heard")
    (data (i32.const 96) "\22content\22:")
    (data (i32.const 112) "{\22summary\22:\22")
    (data (i32.const 128) "\22}")
    (data (i32.const 144) "{\22summary\22:\22tool completed\22,\22content\22:\22{\5c\22lines\5c\22:")
    (data (i32.const 208) ",\5c\22words\5c\22:")
    (data (i32.const 224) "}\22}")
    (data (i32.const 240) " heard\22}")
    (data (i32.const 256) "{\22summary\22:\22tool error: unsupported_tool\22,\22content\22:\22{\5c\22error\5c\22:{\5c\22code\5c\22:\5c\22unsupported_tool\5c\22}}\22}")
    (data (i32.const 368) "{\22state\22:\22ready\22,\22data\22:{\22heard\22:")
    (data (i32.const 416) "}}")
    (data (i32.const 432) "{\22accepted\22:true,\22data\22:{\22heard\22:")
    (data (i32.const 480) "{\22state\22:\22stopped\22,\22data\22:null}")
    (data (i32.const 512) "{\22error\22:{\22message\22:\22plugin instance has not been started\22}}")

    ;; -- an answer is written piece by piece
    (func $begin
      (global.set $out (call $realloc (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 512)))
      (global.set $end (global.get $out)))
    (func $put (param $at i32) (param $size i32)
      (memory.copy (global.get $end) (local.get $at) (local.get $size))
      (global.set $end (i32.add (global.get $end) (local.get $size))))
    (func $number (param $value i32)
      (if (i32.ge_u (local.get $value) (i32.const 10))
        (then (call $number (i32.div_u (local.get $value) (i32.const 10)))))
      (i32.store8 (global.get $end) (i32.add (i32.const 48) (i32.rem_u (local.get $value) (i32.const 10))))
      (global.set $end (i32.add (global.get $end) (i32.const 1))))
    (func $give (param $at i32) (param $size i32) (result i32)
      (i32.store (i32.const 16) (local.get $at))
      (i32.store (i32.const 20) (local.get $size))
      (i32.const 16))
    (func $given (result i32)
      (call $give (global.get $out) (i32.sub (global.get $end) (global.get $out))))

    (func $same (param $one i32) (param $other i32) (param $size i32) (result i32)
      (block $no (block $yes (loop $next
        (br_if $yes (i32.eqz (local.get $size)))
        (br_if $no (i32.ne (i32.load8_u (local.get $one)) (i32.load8_u (local.get $other))))
        (local.set $one (i32.add (local.get $one) (i32.const 1)))
        (local.set $other (i32.add (local.get $other) (i32.const 1)))
        (local.set $size (i32.sub (local.get $size) (i32.const 1)))
        (br $next)))
        (return (i32.const 1)))
      (i32.const 0))
    (func $is (param $one i32) (param $size i32) (param $other i32) (param $length i32) (result i32)
      (if (i32.ne (local.get $size) (local.get $length)) (then (return (i32.const 0))))
      (call $same (local.get $one) (local.get $other) (local.get $size)))

    ;; -- wat_count: its input {"path": …} is a request of `fs` already. The reply is JSON: what stands behind "content": up to the
    ;; next quote that is not escaped is looked at byte by byte. Two characters such as \n and \t are white space, \" is not.
    (func $count (param $input i32) (param $size i32) (result i32)
      (local $at i32) (local $stop i32) (local $byte i32) (local $space i32) (local $word i32)
      (local $lines i32) (local $words i32) (local $open i32)
      (call $read (local.get $input) (local.get $size) (i32.const 24))
      (local.set $at (i32.load (i32.const 24)))
      (local.set $stop (i32.add (local.get $at) (i32.load (i32.const 28))))
      (block $found (loop $seek
        (br_if $found (call $same (local.get $at) (i32.const 96) (i32.const 10)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br_if $seek (i32.lt_u (local.get $at) (local.get $stop)))
        unreachable))
      (local.set $at (i32.add (local.get $at) (i32.const 10)))
      (loop $blank ;; up to and over the quote that opens it
        (local.set $byte (i32.load8_u (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br_if $blank (i32.ne (local.get $byte) (i32.const 34))))
      (block $done (loop $next
        (local.set $byte (i32.load8_u (local.get $at)))
        (br_if $done (i32.eq (local.get $byte) (i32.const 34))) ;; "
        (local.set $space (i32.eq (local.get $byte) (i32.const 32)))
        (local.set $open (i32.const 1)) ;; a last line may lack its end
        (if (i32.eq (local.get $byte) (i32.const 92)) (then ;; \
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (local.set $byte (i32.load8_u (local.get $at)))
          (if (i32.eq (local.get $byte) (i32.const 110)) (then ;; n
            (local.set $lines (i32.add (local.get $lines) (i32.const 1)))
            (local.set $open (i32.const 0))))
          (local.set $space (i32.or (i32.eq (local.get $byte) (i32.const 110))
            (i32.or (i32.eq (local.get $byte) (i32.const 116)) (i32.eq (local.get $byte) (i32.const 114))))))) ;; t, r
        (if (i32.and (i32.eqz (local.get $space)) (i32.eqz (local.get $word)))
          (then (local.set $words (i32.add (local.get $words) (i32.const 1)))))
        (local.set $word (i32.eqz (local.get $space)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
      (call $begin)
      (call $put (i32.const 144) (i32.const 50))
      (call $number (i32.add (local.get $lines) (local.get $open)))
      (call $put (i32.const 208) (i32.const 11))
      (call $number (local.get $words))
      (call $put (i32.const 224) (i32.const 3))
      (call $given))

    ;; -- the exports of the world
    (func (export "start") (param $config i32) (param $size i32) (result i32)
      (global.set $started (i32.const 1))
      (global.set $heard (i32.const 0))
      (call $status))
    (func (export "handle-tool") (param $name i32) (param $length i32) (param $input i32) (param $size i32) (result i32)
      (if (i32.eqz (global.get $started)) (then (return (call $give (i32.const 512) (i32.const 60)))))
      (if (call $is (local.get $name) (local.get $length) (i32.const 64) (i32.const 9))
        (then (return (call $count (local.get $input) (local.get $size)))))
      (if (call $is (local.get $name) (local.get $length) (i32.const 80) (i32.const 9))
        (then
          (call $begin)
          (call $put (i32.const 112) (i32.const 12))
          (call $number (global.get $heard))
          (call $put (i32.const 240) (i32.const 8))
          (return (call $given))))
      (call $give (i32.const 256) (i32.const 98)))
    (func (export "handle-ingress") (param $name i32) (param $length i32) (param $event i32) (param $size i32) (result i32)
      (if (i32.eqz (global.get $started)) (then (return (call $give (i32.const 512) (i32.const 60)))))
      (global.set $heard (i32.add (global.get $heard) (i32.const 1)))
      (call $begin)
      (call $put (i32.const 432) (i32.const 33))
      (call $number (global.get $heard))
      (call $put (i32.const 416) (i32.const 2))
      (call $given))
    (func $status (export "status") (result i32)
      (if (i32.eqz (global.get $started)) (then (return (call $give (i32.const 512) (i32.const 60)))))
      (call $begin)
      (call $put (i32.const 368) (i32.const 33))
      (call $number (global.get $heard))
      (call $put (i32.const 416) (i32.const 2))
      (call $given))
    (func (export "stop") (result i32)
      (global.set $started (i32.const 0))
      (call $give (i32.const 480) (i32.const 31))))
  (core instance $main (instantiate $code (with "libc" (instance $libc)) (with "host" (instance $host))))

  ;; -- the same exports, as a host sees them ----------------------------------------------------------------------------------------
  (func (export "start") (param "config-json" string) (result string)
    (canon lift (core func $main "start")
      (memory (core memory $memory)) (realloc (core func $realloc)) (post-return (core func $reset))))
  (func (export "handle-tool") (param "name" string) (param "input-json" string) (result string)
    (canon lift (core func $main "handle-tool")
      (memory (core memory $memory)) (realloc (core func $realloc)) (post-return (core func $reset))))
  (func (export "handle-ingress") (param "name" string) (param "event-json" string) (result string)
    (canon lift (core func $main "handle-ingress")
      (memory (core memory $memory)) (realloc (core func $realloc)) (post-return (core func $reset))))
  (func (export "status") (result string)
    (canon lift (core func $main "status")
      (memory (core memory $memory)) (realloc (core func $realloc)) (post-return (core func $reset))))
  (func (export "stop") (result string)
    (canon lift (core func $main "stop")
      (memory (core memory $memory)) (realloc (core func $realloc)) (post-return (core func $reset)))))
