# heddle_library() and heddle_op(): the functions that turn folders into targets. In every folder X_test.cpp is a test,
# X_bench.cpp a benchmark, X_fuzz.cpp a fuzz target, and every other .cpp belongs to the library.

if(HEDDLE_BUILD_TESTS)
  enable_testing()
  find_package(GTest 1.12 REQUIRED)
  add_library(heddle_testing STATIC EXCLUDE_FROM_ALL src/testing/isa.cpp src/testing/main.cpp)
  target_include_directories(heddle_testing PUBLIC src/testing include ${CMAKE_BINARY_DIR}/include)
  target_link_libraries(heddle_testing PUBLIC GTest::gtest hwy::hwy PRIVATE heddle_flags)
endif()

# Program test_<name> of the given sources, linked with `target` and run as test <name>. Keywords after the sources:
# LABEL (default unit) and LAUNCHER, a command that the test runs through.
function(heddle_test target name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "LABEL;LAUNCHER" "SOURCES")
  add_executable(test_${name} ${arg_SOURCES})
  target_link_libraries(test_${name} PRIVATE ${target} heddle_testing heddle_flags)
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(test_${name} PRIVATE HEDDLE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${arg_LAUNCHER} $<TARGET_FILE:test_${name}>)
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL})
endfunction()

# Program fuzz_X of X_fuzz.cpp. With HEDDLE_FUZZ libFuzzer drives it; else it runs the inputs in tests/corpus/X once, as test.
function(heddle_fuzz target source)
  cmake_path(GET source STEM stem)
  string(REGEX REPLACE "_fuzz$" "" name ${stem})
  if(HEDDLE_FUZZ)
    add_executable(fuzz_${name} ${source})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  elseif(HEDDLE_BUILD_TESTS)
    add_executable(fuzz_${name} ${source} ${PROJECT_SOURCE_DIR}/src/testing/fuzz_main.cpp)
    add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${PROJECT_SOURCE_DIR}/tests/corpus/${name})
    set_tests_properties(fuzz_${name} PROPERTIES LABELS fuzz)
  else()
    return()
  endif()
  target_link_libraries(fuzz_${name} PRIVATE ${target} heddle_flags)
  target_include_directories(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
endfunction()

# Adds the sources of the folders (relative to the project) to library `target`, their tests as program test_<name>.
function(heddle_add_folders target name)
  foreach(folder IN LISTS ARGN)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
    foreach(kind IN ITEMS test bench fuzz)
      set(${kind} ${sources})
      list(FILTER ${kind} INCLUDE REGEX "_${kind}\\.cpp$")
      list(APPEND ${kind}_sources ${${kind}})
      list(FILTER sources EXCLUDE REGEX "_${kind}\\.cpp$")
    endforeach()
    target_sources(${target} PRIVATE ${sources})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY HEDDLE_BENCH_SOURCES ${bench_sources})
  if(HEDDLE_BUILD_TESTS AND test_sources)
    heddle_test(${target} ${name} SOURCES ${test_sources})
  endif()
  foreach(source IN LISTS fuzz_sources)
    heddle_fuzz(${target} ${source})
  endforeach()
endfunction()

# A library of whole folders; its tests are one program named like the last folder of each.
function(heddle_library target)
  add_library(${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:heddle_flags>)
  target_include_directories(${target}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include>
           $<INSTALL_INTERFACE:include>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  foreach(folder IN LISTS ARGN)
    cmake_path(GET folder FILENAME name)
    heddle_add_folders(${target} ${name} ${folder})
  endforeach()
endfunction()

# The op family in src/ops/<family>, as part of library heddle.
function(heddle_op family)
  heddle_add_folders(heddle ${family} src/ops/${family})
endfunction()
