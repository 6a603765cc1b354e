;; Polls ENTRIES pollables of stdout at once, again and again: a component of the world metahook:hook that calls preview 2
;; itself.
(component
  (core module $shared
    (memory (export "memory") 64)
    (global $free (mut i32) (i32.const 2097152))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (global.get $free)
      (global.set $free
        (i32.and (i32.add (i32.add (global.get $free) (local.get 3)) (i32.const 7)) (i32.const 3145720)))))
  (core instance $shared (instantiate $shared))
  (alias core export $shared "memory" (core memory $memory))
  (alias core export $shared "realloc" (core func $realloc))
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "poll" (func (param "in" (list (borrow 0))) (result (list u32))))))
  (alias export $poll "pollable" (type $pollable))
  (alias export $poll "poll" (func $host-poll))
  (core func $poll (canon lower (func $host-poll) (memory $memory) (realloc $realloc)))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (alias outer 1 $pollable (type $p))
    (export "output-stream" (type $out (sub resource)))
    (export "[method]output-stream.subscribe" (func (param "self" (borrow $out)) (result (own $p))))))
  (alias export $streams "output-stream" (type $out))
  (alias export $streams "[method]output-stream.subscribe" (func $host-subscribe))
  (core func $subscribe (canon lower (func $host-subscribe)))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $out (type $o))
    (export "get-stdout" (func (result (own $o))))))
  (alias export $stdout "get-stdout" (func $host-stdout))
  (core func $get-stdout (canon lower (func $host-stdout)))
  (core instance $host
    (export "poll" (func $poll)) (export "subscribe" (func $subscribe)) (export "stdout" (func $get-stdout)))
  (core module $own
    (import "shared" "memory" (memory 64))
    (import "host" "poll" (func $poll (param i32 i32 i32)))
    (import "host" "subscribe" (func $subscribe (param i32) (result i32)))
    (import "host" "stdout" (func $stdout (result i32)))
    (func $main (export "f") (param i32 i32) (result i32) (local $i i32) (local $handle i32)
      (local.set $handle (call $subscribe (call $stdout)))
      (loop $fill
        (i32.store (i32.add (i32.const 65536) (i32.mul (local.get $i) (i32.const 4))) (local.get $handle))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $fill (i32.lt_u (local.get $i) (i32.const ENTRIES))))
      (loop $again
        (call $poll (i32.const 65536) (i32.const ENTRIES) (i32.const 16))
        (br $again))
      unreachable))
  (core instance $i (instantiate $own (with "shared" (instance $shared)) (with "host" (instance $host))))
  (func (export "sync") (param "request" string) (result (result string (error string)))
    (canon lift (core func $i "f") (memory $memory) (realloc $realloc))))
