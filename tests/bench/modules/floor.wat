;; An instance whose _start returns at once: what an instance costs.
(module
  (memory (export "memory") 1)
  (func (export "_start")))
