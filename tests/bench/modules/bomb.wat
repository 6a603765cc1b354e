;; Takes all the memory there is, and writes to each of its pages.
(module
  (memory (export "memory") 1)
  (func (export "_start") (local $at i32)
    (loop $again
      (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
      (loop $touch
        (i32.store (local.get $at) (i32.const 1))
        (local.set $at (i32.add (local.get $at) (i32.const 4096)))
        (br_if $touch (i32.lt_u (local.get $at) (i32.shl (memory.size) (i32.const 16)))))
      (br $again))))
