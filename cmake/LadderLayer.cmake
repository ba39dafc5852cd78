# ladder_layer(<layer>): what is made of one layer, dev/<layer>/ and the files named after it.
#
#     ladder_<layer>             dev/<layer>/**/*.{cu,cpp}: its passes and their versions
#     ladder_<layer>_reference   reference/<layer>_*.cpp: the double-precision reference, and baselines without cuDNN, of
#                                which reference/<layer>_cublaslt.cpp needs cuBLASLt
#     ladder_<layer>_cudnn       reference/<layer>_cudnn.cpp, where there is cuDNN
#     bench_<layer>              bench/bench_<layer>.cpp on the harness of bench/, with this layer and no other
#     try_<layer>, judge_<layer> of cmake/LadderTry.cmake
#
# Its test programs are made in tests/CMakeLists.txt. A program gets a layer by ladder_link(<program> <layer>...).
include_guard()

# Headers that every kernel includes, compiled once. nvcc has no such thing.
if(LADDER_EMULATOR)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/kernel_headers.cpp CONTENT "")
  ladder_object_library(ladder_kernel_headers ${PROJECT_BINARY_DIR}/generated/kernel_headers.cpp)
  # assert() counts, and a vector at an address that is none of its multiples is an error, as on a GPU:
  # core/simt/access.cpp reports both.
  set(LADDER_KERNEL_OPTIONS -UNDEBUG)
  if(NOT LADDER_SANITIZE MATCHES "address")
    list(APPEND LADDER_KERNEL_OPTIONS -fsanitize=alignment -fno-sanitize-recover=alignment)
  endif()
  target_compile_options(ladder_kernel_headers PRIVATE ${LADDER_KERNEL_OPTIONS})
  target_precompile_headers(ladder_kernel_headers PRIVATE
                            ${PROJECT_SOURCE_DIR}/core/device.h ${PROJECT_SOURCE_DIR}/core/registry.h)
endif()

# The precompiled headers for a library or program of kernels.
function(ladder_with_kernel_headers target)
  if(LADDER_EMULATOR)
    target_precompile_headers(${target} REUSE_FROM ladder_kernel_headers)
    target_compile_options(${target} PRIVATE ${LADDER_KERNEL_OPTIONS} -fPIC)  # as those headers are compiled; a program would have -fPIE
  endif()
endfunction()

# A layer is a folder of dev/ with a header of its own name; ptx/ and common/ are headers for all of them. One that lacks a
# part is left out, so that the others build; left_out.txt tells ./ladder, which says it at every build.
function(ladder_find_layers result)
  file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} dev/*/*.h)
  set(layers)
  set(left_out)
  foreach(header IN LISTS headers)
    if(NOT header MATCHES "^dev/([^/]+)/([^/]+)\\.h$" OR NOT CMAKE_MATCH_1 STREQUAL CMAKE_MATCH_2)
      continue()
    endif()
    set(layer ${CMAKE_MATCH_1})
    set(missing)
    foreach(part dev/${layer}/${layer}.cpp dev/${layer}/shapes.txt dev/${layer}/*/v*.cu
                 reference/${layer}_reference.cpp bench/bench_${layer}.cpp)
      file(GLOB there CONFIGURE_DEPENDS ${part})
      if(NOT there)
        list(APPEND missing ${part})
      endif()
    endforeach()
    if(missing)
      list(JOIN missing ", " missing)
      message(STATUS "dev/${layer} is left out: there is no ${missing}")
      string(APPEND left_out "dev/${layer} is left out: there is no ${missing}\n")
    else()
      list(APPEND layers ${layer})
    endif()
  endforeach()
  file(WRITE ${PROJECT_BINARY_DIR}/left_out.txt "${left_out}")
  set(${result} ${layers} PARENT_SCOPE)
endfunction()

function(ladder_layer layer)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} dev/${layer}/*.cpp dev/${layer}/*.cu)
  list(REMOVE_ITEM sources ${LADDER_WITHOUT})
  ladder_object_library(ladder_${layer} ${sources})
  ladder_with_kernel_headers(ladder_${layer})
  if(NOT LADDER_EMULATOR)
    # A version is compiled for architectures that it can run on. Registers, shared memory and spills of every kernel are
    # kept beside its object file, for tools/dev/resources.py.
    find_package(Python3 COMPONENTS Interpreter)
    if(Python3_FOUND)
      target_compile_options(ladder_${layer} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>")
      set_target_properties(ladder_${layer} PROPERTIES CUDA_COMPILER_LAUNCHER
                            "${Python3_EXECUTABLE};${PROJECT_SOURCE_DIR}/tools/dev/launch_nvcc.py;${CMAKE_CUDA_COMPILER_LAUNCHER}")
    endif()
  endif()

  ladder_keep_going(ladder_${layer})

  file(GLOB sources CONFIGURE_DEPENDS reference/${layer}_*.cpp)
  list(FILTER sources EXCLUDE REGEX "_cudnn\\.cpp$")
  if(NOT cublasLt_FOUND)
    list(FILTER sources EXCLUDE REGEX "_cublaslt\\.cpp$")
  endif()
  ladder_object_library(ladder_${layer}_reference ${sources})
  # -O2 does not vectorise their loops, which judge large problems too.
  target_compile_options(ladder_${layer}_reference PRIVATE ${LADDER_OPTIMISED} $<$<NOT:$<CONFIG:Debug>>:-O3>)
  if(cublasLt_FOUND AND "${sources}" MATCHES "_cublaslt\\.cpp")
    target_link_libraries(ladder_${layer}_reference PUBLIC CUDA::cublasLt)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS reference/${layer}_cudnn.cpp)
  if(cuDNN_FOUND AND sources)
    ladder_object_library(ladder_${layer}_cudnn ${sources})
    target_link_libraries(ladder_${layer}_cudnn PUBLIC cuDNN::frontend)
    target_compile_options(ladder_${layer}_cudnn PRIVATE ${LADDER_QUICKLY})
  endif()

  if(LADDER_PROGRAMS)
    add_executable(bench_${layer} bench/bench_${layer}.cpp)
    target_link_libraries(bench_${layer} PRIVATE ladder_bench ladder_promoted)
    ladder_link(bench_${layer} ${layer})
    target_link_options(bench_${layer} PRIVATE -Wl,--build-id=sha1)  # names the binary in its records
    ladder_link_from_build(bench_${layer})
    ladder_try(${layer})
  endif()
endfunction()

# The program gets the core; with layers also what checks them, and of each its versions, its reference and its baselines.
function(ladder_link program)
  target_link_libraries(${program} PRIVATE ladder_core)
  if(ARGN)
    target_link_libraries(${program} PRIVATE ladder_check ladder_baseline)
    if(TARGET ladder_baseline_cudnn)
      target_link_libraries(${program} PRIVATE ladder_baseline_cudnn)
    endif()
  endif()
  foreach(layer IN LISTS ARGN)
    target_link_libraries(${program} PRIVATE ladder_${layer} ladder_${layer}_reference)
    if(TARGET ladder_${layer}_cudnn)
      target_link_libraries(${program} PRIVATE ladder_${layer}_cudnn)
    endif()
  endforeach()
endfunction()
