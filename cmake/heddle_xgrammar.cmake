# Structured output: xgrammar, from the source archive of cmake/xgrammar.json (docs/dependencies.md). Its objects and the one source that
# includes its headers become one object, of which the functions of engine/rules/grammar/grammar_library.h alone are seen from outside:
# a program that has another xgrammar, or picojson, keeps its own. Its operator new and delete are heddle's (work_limit.cpp), which bound
# the time and memory of a schema that came over the network.
set(default ON)
if(HEDDLE_GPU_CHECK)  # on machines without a network
  set(default OFF)
endif()
option(HEDDLE_GRAMMAR "Structured output, by xgrammar" ${default})
set(HEDDLE_XGRAMMAR_DIR "" CACHE PATH "The unpacked sources of xgrammar 0.2.8; empty: they are fetched")

function(heddle_add_grammar target)
  set(folder ${PROJECT_SOURCE_DIR}/src/engine/rules)
  if(NOT HEDDLE_GRAMMAR)
    heddle_both_sources(${target} ${folder}/grammar/no_library.cpp)
    return()
  endif()
  set(sources ${HEDDLE_XGRAMMAR_DIR})
  if(NOT sources)
    find_program(HEDDLE_PYTHON3 python3 REQUIRED)
    execute_process(COMMAND ${HEDDLE_PYTHON3} ${PROJECT_SOURCE_DIR}/tools/fetch_archives.py --list ${PROJECT_SOURCE_DIR}/cmake/xgrammar.json xgrammar
      OUTPUT_VARIABLE sources OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
    if(failed OR NOT sources)
      message(FATAL_ERROR "heddle: the sources of xgrammar could not be fetched. HEDDLE_XGRAMMAR_DIR names a folder that has them, and "
        "HEDDLE_GRAMMAR=OFF builds without structured output")
    endif()
    set(sources ${sources}/xgrammar-0.2.8)
  endif()
  file(GLOB files ${sources}/cpp/*.cc ${sources}/cpp/converter_ext/*.cc ${sources}/cpp/support/*.cc)
  add_library(heddle_xgrammar OBJECT EXCLUDE_FROM_ALL ${files} ${folder}/xgrammar/xgrammar_library.cpp)
  set_source_files_properties(${files} PROPERTIES COMPILE_OPTIONS -w)
  target_compile_definitions(heddle_xgrammar PRIVATE
    XGRAMMAR_LOG_CUSTOMIZE=1 XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
    _GLIBCXX_EXTERN_TEMPLATE=0)  # strings, too, allocate by the functions below
  # Without sanitizers: the archive is as it is, and they would make it twice as dear.
  target_compile_options(heddle_xgrammar PRIVATE -O2 -fno-sanitize=all $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  set_target_properties(heddle_xgrammar PROPERTIES CXX_VISIBILITY_PRESET hidden)
  target_include_directories(heddle_xgrammar SYSTEM PRIVATE
    ${sources}/include ${sources}/3rdparty/picojson ${sources}/3rdparty/dlpack/include)
  target_include_directories(heddle_xgrammar PRIVATE
    ${HEDDLE_ONCE_FOLDER} ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(heddle_xgrammar PRIVATE Boost::headers)
  set(object ${CMAKE_BINARY_DIR}/heddle_xgrammar.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${object} $<TARGET_OBJECTS:heddle_xgrammar>
    COMMAND ${CMAKE_OBJCOPY} --redefine-sym _Znwm=heddle_grammar_new --redefine-sym _Znam=heddle_grammar_new_array
      --redefine-sym _ZdlPv=heddle_grammar_delete --redefine-sym _ZdaPv=heddle_grammar_delete_array
      --redefine-sym _ZdlPvm=heddle_grammar_delete_sized --redefine-sym _ZdaPvm=heddle_grammar_delete_array_sized
      --wildcard --keep-global-symbol=_ZN6heddle7grammar* ${object}
    DEPENDS heddle_xgrammar $<TARGET_OBJECTS:heddle_xgrammar> COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  add_custom_target(heddle_xgrammar_object DEPENDS ${object})
  foreach(each IN ITEMS ${target} ${target}_cpu)
    get_target_property(alias ${each} ALIASED_TARGET)
    if(NOT alias)
      target_sources(${each} PRIVATE ${object})
      add_dependencies(${each} heddle_xgrammar_object)
    endif()
  endforeach()
endfunction()
