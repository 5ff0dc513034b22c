# embed.cmake: cmake -D LIST=FILE -D OUT=FOLDER -P embed.cmake
# Reads lines "path|content type|file" and writes asset_bytes.S (the files' bytes) and asset_table.c
# (TALLY_ASSETS, with each file's size and checksum as they are now).
set(bytes "/* Made by services/dashboard/embed.cmake. */\n    .section .rodata\n")
set(names "")
set(rows "")
set(n 0)
file(STRINGS ${LIST} lines)
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^([^|]+)\\|([^|]+)\\|([^|\"\\\\]+)$")
    message(FATAL_ERROR "not \"path|content type|file\": ${line}")
  endif()
  set(path "${CMAKE_MATCH_1}")
  set(type "${CMAKE_MATCH_2}")
  set(file "${CMAKE_MATCH_3}")
  if(type MATCHES "^text/")
    string(APPEND type "; charset=utf-8")
  endif()
  if(path MATCHES "^/assets/(.*)$")
    string(LENGTH "${CMAKE_MATCH_1}" length)
    if(length GREATER 31 OR CMAKE_MATCH_1 MATCHES "/")
      message(FATAL_ERROR "${path}: one segment of at most 31 characters")
    endif()
  endif()
  file(SIZE "${file}" size)
  file(SHA256 "${file}" sum)
  string(SUBSTRING ${sum} 0 32 sum)
  string(APPEND bytes
    "    .globl tally_asset_${n}\n    .type tally_asset_${n}, %object\n    .balign 16\n"
    "tally_asset_${n}:\n    .incbin \"${file}\"\n    .size tally_asset_${n}, ${size}\n    .byte 0\n")
  string(APPEND names "extern const char tally_asset_${n}[];\n")
  string(APPEND rows
    "    {\"${path}\", \"${type}\", \"\\\"${sum}\\\"\", tally_asset_${n}, ${size}},\n")
  math(EXPR n "${n} + 1")
endforeach()
# Without this note the linker would make the stack executable.
string(APPEND bytes "    .section .note.GNU-stack,\"\",%progbits\n")
file(WRITE ${OUT}/asset_bytes.S "${bytes}")
file(WRITE ${OUT}/asset_table.c "/* Made by services/dashboard/embed.cmake. */\n"
  "#include \"services/dashboard/dashboard.h\"\n\n${names}\n"
  "const struct tally_asset TALLY_ASSETS[] = {\n${rows}    {0},\n};\n")
