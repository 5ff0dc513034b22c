# Debian packages, one for each install component: `cpack --preset deb`, after a build of that preset. They are installed
# by tests/run bare.
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/documents.cmake) # copyright, changelog, compressed man pages
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "Tally <packages@tally.invalid>")
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()

# tally_package(COMPONENT NAME SECTION SUMMARY DESCRIPTION [FIELD VALUE]...)
macro(tally_package component name section summary description)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${description}")
  set(fields ${ARGN})
  while(fields)
    list(POP_FRONT fields field value)
    set(CPACK_DEBIAN_${upper}_PACKAGE_${field} "${value}")
  endwhile()
endmacro()

get_target_property(soversion libtally SOVERSION)
set(CPACK_COMPONENTS_ALL "")
tally_package(coordinator tally-coordinator net "coordinator of federated optimisation jobs"
  "Accepts jobs over HTTP, gives tasks to workers, and counts regret and\nevery bit that is sent."
  SUGGESTS tally)
tally_package(worker tally-worker net "worker of federated optimisation jobs"
  "Polls a coordinator for tasks, computes gradients on its own data and\nposts them quantized.")
tally_package(tools tally net "command line of Tally, for federated optimisation jobs"
  "Submits jobs to a coordinator, follows them, simulates and plans them, and\nbacks up databases.")
tally_package(library libtally${soversion} libs "codec and worker of Tally, shared library"
  "Encodes and decodes quantized gradients, and runs clients of jobs with\ngradients of your own.")
tally_package(development libtally-dev libdevel "codec and worker of Tally, development files"
  "Headers, pkg-config and CMake files, manual page, and an example of a plug-in.")
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS library)
tally_package(python python3-tally python "workers, jobs and codec of Tally in Python"
  "Runs workers whose gradients are Python functions, submits jobs, encodes\nand decodes messages."
  ARCHITECTURE all DEPENDS "python3, python3-numpy")
set(CPACK_COMPONENT_PYTHON_DEPENDS library)

# The scripts that dpkg runs. CONFFILES: files of the administrator's, which dpkg keeps.
set(folder ${CMAKE_CURRENT_BINARY_DIR}/debian)
foreach(component IN ITEMS coordinator worker)
  string(TOUPPER ${component} upper)
  set(UNITS tally-coordinator.service)
  set(SECRETS "admin-token metrics-token grafana-password postgres-password pg_service.conf curl-admin tls-cert.pem tls-key.pem")
  set(STATE "/var/lib/tally /var/lib/private/tally")
  set(OTHER tally-worker@.service)
  if(component STREQUAL worker)
    set(UNITS "tally-worker@*.service")
    set(SECRETS "")
    set(STATE "")
    set(OTHER tally-coordinator.service)
  endif()
  foreach(script IN ITEMS postinst prerm postrm)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/${script}.in ${folder}/${component}/${script} @ONLY)
  endforeach()
  file(CONFIGURE OUTPUT ${folder}/${component}/conffiles CONTENT "/etc/tally/${component}.conf\n")
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${folder}/${component}/postinst ${folder}/${component}/prerm
    ${folder}/${component}/postrm ${folder}/${component}/conffiles)
endforeach()
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/library/triggers)
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/python/postinst ${CMAKE_CURRENT_LIST_DIR}/python/prerm)
include(CPack)
