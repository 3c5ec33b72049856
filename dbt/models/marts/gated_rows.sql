-- grain: one row per publishable row_id, nothing else
select * from {{ ref('measured_rows') }}
where standing = 'publishable'
