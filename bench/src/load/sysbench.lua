-- One statement, prepared on each connection and executed again and again.
sysbench.cmdline.options = {
  statement = {"What is asked", ""}
}

function thread_init()
  connection = sysbench.sql.driver():connect()
  statement = connection:prepare(sysbench.opt.statement)
end

function event()
  statement:execute()
end

function thread_done()
  statement:close()
  connection:disconnect()
end
