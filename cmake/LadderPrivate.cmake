# What `./ladder setup` fetched where the machine lacked it: .ladder/ in the source tree. Included before project(), so
# that `cmake --preset ...` by hand finds the same compiler and libraries as `./ladder` does.
set(LADDER_PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/.ladder)

# Debian packages unpacked without root.
if(EXISTS ${LADDER_PRIVATE}/root/usr)
  list(APPEND CMAKE_PREFIX_PATH ${LADDER_PRIVATE}/root/usr)
endif()

# NVIDIA's wheels: the whole toolkit, or for the emulator only its headers.
set(LADDER_CUDA_WHEELS ${LADDER_PRIVATE}/cuda/nvidia/cu13)
if(EXISTS ${LADDER_CUDA_WHEELS}/bin/nvcc AND NOT DEFINED CMAKE_CUDA_COMPILER AND NOT LADDER_EMULATOR)
  set(CMAKE_CUDA_COMPILER ${LADDER_CUDA_WHEELS}/bin/nvcc)
  set(CUDAToolkit_ROOT ${LADDER_CUDA_WHEELS})
endif()

# A CUDA toolkit in its usual place need not be on PATH.
if(NOT LADDER_EMULATOR AND NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(LADDER_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin /opt/cuda/bin)
  if(LADDER_NVCC)
    set(CMAKE_CUDA_COMPILER ${LADDER_NVCC})
  endif()
endif()

set(LADDER_CUDA_HINTS
    ${LADDER_CUDA_WHEELS} ${LADDER_PRIVATE}/cuda-headers/nvidia/cu13 $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda
    /opt/cuda)

# A compiler cache, where the machine has one. Paths are hashed relative to the source tree, so that clones share objects.
# Comments of C++ are hashed too: GCC rejects a precompiled header of a source with other comments. nvcc's preprocessor
# cannot keep them.
find_program(LADDER_CCACHE ccache)
if(LADDER_CCACHE)
  set(CXX_comments CCACHE_COMMENTS=1)
  foreach(language CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_${language}_COMPILER_LAUNCHER})
      set(CMAKE_${language}_COMPILER_LAUNCHER
          ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_CURRENT_SOURCE_DIR} CCACHE_NOHASHDIR=1
          ${${language}_comments} CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${LADDER_CCACHE})
    endif()
  endforeach()
endif()
