# Settings of the builds that tools/gpu_check makes and runs, on the GPU machine or for it: they need CUDA and GoogleTest alone, and
# the programs need only the driver and the C library, so that they run elsewhere too. Where what model and engine need is there, their
# tests are built as well.

set(HEDDLE_SOURCE_DIR_OF_TESTS .)  # they run in the source tree or in a copy of what they read of it
set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)  # the code is kept free of the warnings of g++ 12; that machine may have another
add_link_options(-static-libstdc++ -static-libgcc)
set(CMAKE_BUILD_RPATH $ORIGIN)  # Debian's Highway has no archive; its library travels next to the programs

find_package(HWY 1.0.3)
if(NOT HWY_FOUND)
  # Without Highway there are no CPU kernels, so the ops' CPU paths lead nowhere, and tests of the CPU are not built. A GPU test that
  # called one would end with the name of the missing function.
  message(STATUS "heddle: Highway not found, building the GPU tests alone")
  add_library(hwy::hwy INTERFACE IMPORTED)
  add_link_options(-rdynamic LINKER:--unresolved-symbols=ignore-in-object-files,-z,lazy)
endif()

set(HEDDLE_GPU_CHECK_ENGINE OFF)
find_package(Boost 1.81 QUIET)  # its headers alone
find_package(nlohmann_json 3.11 QUIET)  # of the tests
find_package(PkgConfig QUIET)
if(HWY_FOUND AND Boost_FOUND AND nlohmann_json_FOUND AND PkgConfig_FOUND)
  pkg_check_modules(PCRE2 QUIET IMPORTED_TARGET libpcre2-8>=10.42)
  pkg_check_modules(UTF8PROC QUIET IMPORTED_TARGET libutf8proc>=2.6)
  pkg_check_modules(XXHASH QUIET IMPORTED_TARGET libxxhash>=0.8)
  if(PCRE2_FOUND AND UTF8PROC_FOUND AND XXHASH_FOUND)
    set(HEDDLE_GPU_CHECK_ENGINE ON)
  endif()
endif()
if(NOT HEDDLE_GPU_CHECK_ENGINE)
  message(STATUS "heddle: Highway, Boost, nlohmann-json, PCRE2, utf8proc or xxHash not found, leaving out the tests of model and engine")
endif()
