# NCCL, for trainings on several GPUs: its header to compile with, its library to load at run time, nothing to link.
# Defines NCCL::headers, whose sources have LADDER_NCCL_LIBRARY, and sets NCCL_FOUND and NCCL_VERSION, of the first place
# that has a version as new as is asked for: the folder LADDER_NCCL, the CUDA toolkit, the compiler's default places,
# `./ladder setup`'s wheel.
#
# NOTE: the wheels, PyTorch's included, carry libnccl.so.2 without the unversioned link.
set(NCCL_VERSION NCCL_VERSION-NOTFOUND)
foreach(place IN ITEMS "$ENV{LADDER_NCCL}" "${CUDAToolkit_INCLUDE_DIRS}/.." default "${LADDER_PRIVATE}/nccl/nvidia/nccl")
  unset(NCCL_INCLUDE_DIR CACHE)  # environment and folders may have changed since they were cached
  unset(NCCL_LIBRARY CACHE)
  if(place STREQUAL "default")
    find_path(NCCL_INCLUDE_DIR nccl.h)
    find_library(NCCL_LIBRARY NAMES libnccl.so.2 nccl)
  elseif(place)
    find_path(NCCL_INCLUDE_DIR nccl.h PATHS ${place}/include NO_DEFAULT_PATH)
    find_library(NCCL_LIBRARY NAMES libnccl.so.2 nccl PATHS ${place} PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
  endif()
  if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h numbers REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
    list(JOIN numbers "." NCCL_VERSION)
    if(NOT NCCL_VERSION VERSION_LESS "${NCCL_FIND_VERSION}")
      break()
    endif()
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION
  REASON_FAILURE_MESSAGE "trainings on several GPUs need --collectives host: run ./ladder setup")
if(NCCL_FOUND AND NOT TARGET NCCL::headers)
  add_library(NCCL::headers INTERFACE IMPORTED)
  target_include_directories(NCCL::headers INTERFACE ${NCCL_INCLUDE_DIR})
  target_compile_definitions(NCCL::headers INTERFACE "LADDER_NCCL_LIBRARY=\"${NCCL_LIBRARY}\"")
endif()
