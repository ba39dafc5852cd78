# cuBLASLt, the baseline of matrix products: part of every CUDA toolkit and of NVIDIA's wheels, and optional all the same.
# Sets LADDER_CUBLASLT and, if true, defines the target ladder_cublaslt.
set(LADDER_CUBLASLT FALSE)
find_path(CUBLASLT_INCLUDE cublasLt.h HINTS ${LADDER_PRIVATE}/cuda/nvidia/cu13/include ${CUDAToolkit_INCLUDE_DIRS})
# The wheels carry libcublasLt.so.13 without the unversioned link.
find_library(CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12
             HINTS ${LADDER_PRIVATE}/cuda/nvidia/cu13/lib ${CUDAToolkit_LIBRARY_DIR} /usr/local/cuda/lib64)

if(CUBLASLT_INCLUDE AND CUBLASLT_LIBRARY)
  set(LADDER_CUBLASLT TRUE)
  add_library(ladder_cublaslt INTERFACE)
  target_include_directories(ladder_cublaslt SYSTEM INTERFACE ${CUBLASLT_INCLUDE})
  target_link_libraries(ladder_cublaslt INTERFACE ${CUBLASLT_LIBRARY})
  message(STATUS "Baseline: cuBLASLt from ${CUBLASLT_LIBRARY}")
else()
  message(STATUS "No baseline for matrix products: cuBLASLt needs cublasLt.h (${CUBLASLT_INCLUDE}) and libcublasLt "
                 "(${CUBLASLT_LIBRARY})")
endif()
