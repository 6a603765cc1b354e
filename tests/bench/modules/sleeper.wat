;; Sleeps an hour, again and again.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 80) (i32.const 1)) ;; the subscription at 64: to the monotonic clock
    (i64.store (i32.const 88) (i64.const 3600000000000))
    (loop $again
      (drop (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 200)))
      (br $again))))
