;; Calls itself until the stack is used up.
(module
  (memory (export "memory") 1)
  (func $deep (call $deep))
  (func (export "_start") (call $deep)))
