# LADDER_SANITIZE, of the emulator's builds: "address,undefined", or "thread". With "thread" the compiler reports accesses
# as it does to ThreadSanitizer, and core/simt/order.cpp takes the place of its library.
add_compile_options(-fsanitize=${LADDER_SANITIZE} -fno-omit-frame-pointer)
if(LADDER_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-recover=all)
endif()
if(LADDER_SANITIZE MATCHES "address")
  add_link_options(-fsanitize=${LADDER_SANITIZE})
  add_compile_definitions(LADDER_ASAN)
  # UndefinedBehaviorSanitizer's checks that AddressSanitizer makes as well: kernels compile faster without.
  add_compile_options(-fno-sanitize=null,object-size)
elseif(LADDER_SANITIZE STREQUAL "thread")
  add_compile_definitions(LADDER_ORDER)
  add_compile_options(--param=tsan-instrument-func-entry-exit=0 -Wno-tsan)
endif()
